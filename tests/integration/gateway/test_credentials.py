"""Who is let in: tokens before routes, one refusal for every bad token, scopes, and a leader that is away or old."""

import asyncio
import socket

import pytest
from silentswarm.core.v1 import access_pb2
from silentswarm.leader.v1 import tokens_pb2
from swarm_core.clock import SystemClock
from swarm_core.errors import Unauthenticated
from swarm_gateway.app import make_table
from swarm_gateway.config import GatewayConfig
from swarm_gateway.endpoints import Endpoint, endpoint_table
from swarm_gateway.front import access
from swarm_gateway.leader import Leader
from swarm_gateway.metrics import GatewayMetrics
from swarm_rpc.channel import dial
from yarl import URL

from tests.integration.gateway.test_failures import assert_openai_error

READ, OPERATE, ADMIN = "sk-swarm-read", "sk-swarm-oper", "sk-swarm-admi"
TOKENS = {READ: ("read",), OPERATE: ("operate",), ADMIN: ("read", "operate", "admin")}
METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE")
LIVENESS = {"/healthz", "/api/v1/health", "/api/v1/ready"}


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def every_endpoint() -> list[Endpoint]:
    """What a gateway would answer."""
    channel = dial("127.0.0.1:1")
    metrics = GatewayMetrics(lambda: 0.0)
    table = make_table(GatewayConfig(), Leader(channel, ""), SystemClock(), "0.0.0", metrics)
    await channel.close()
    return [endpoint for _, _, endpoint in table]


def a_path_of(endpoint: Endpoint) -> str:
    """Some path this endpoint takes."""
    path, rest = "", endpoint.path
    while "{" in rest:
        before, _, rest = rest.partition("{")
        path, rest = f"{path}{before}thing", rest.partition("}")[2]
    return path + rest


async def test_an_endpoint_without_an_access_class_cannot_be_added():
    async def answer(request, raw_variables): ...

    for none in (access_pb2.ACCESS_UNSPECIFIED, access_pb2.ACCESS_NODE, 99):
        with pytest.raises(ValueError, match="GET /new has no access class"):
            endpoint_table([Endpoint("GET", "/new", answer, none)])


async def test_only_liveness_pages_and_roots_are_public():
    public = {endpoint.path for endpoint in await every_endpoint() if endpoint.access == access_pb2.ACCESS_PUBLIC}

    assert public - LIVENESS - {"/", "/static/{version}/{file=**}", "/api/v1/trust/roots"} == set()


async def test_without_a_token_every_endpoint_and_method_is_401(start_gateway):
    """Also paths that nothing answers: what exists is nobody's business."""
    gateway = await start_gateway(tokens=TOKENS)
    endpoints = await every_endpoint()
    open_paths = {a_path_of(endpoint) for endpoint in endpoints if endpoint.access == access_pb2.ACCESS_PUBLIC}
    paths = {a_path_of(endpoint) for endpoint in endpoints} | {
        "/v2/nothing", "//v1/models", "/V1/models", "/v1/models/", "/v1%2Fmodels", "/v1/models/..", "/v1/./models",
        "/%2e%2e/metrics", "/metrics/", "//metrics", "/metrics%00", "/v1/models/a%0d%0ab", "/healthz/../metrics",
        "/healthz/x", "/healthz%2f..%2fmetrics", "/v1", "/api/v1",
    }  # fmt: skip
    wrong = []
    for path in sorted(paths):
        for method in METHODS:
            if path in open_paths and method in ("GET", "HEAD"):
                continue
            async with gateway.client.request(method, URL(gateway.url + path, encoded=True)) as response:
                if response.status != 401 or response.headers["WWW-Authenticate"] != "Bearer":
                    wrong.append((method, path, response.status))

    assert wrong == []
    assert gateway.leader.loads == gateway.leader.asked == []


async def test_liveness_needs_no_token(start_gateway):
    gateway = await start_gateway(tokens=TOKENS)

    for path in sorted(LIVENESS):
        assert (await gateway.get(path))[0] == 200
        async with gateway.client.head(gateway.url + path) as response:
            assert response.status == 200


async def test_every_bad_token_gets_the_same_401(start_gateway):
    gateway = await start_gateway(tokens=TOKENS)
    bodies = set()
    for headers in (
        {},
        bearer("sk-swarm-nope"),
        bearer("sk-swarm-rea"),
        bearer(READ + "x"),
        bearer("x" * 8000),
        bearer("é\x80"),
        bearer(""),
        {"Authorization": READ},
        {"Authorization": "Basic " + READ},
        {"x-api-key": READ},
        {"Cookie": f"token={READ}"},
    ):
        async with gateway.client.get(gateway.url + "/v1/models?a=1", headers=headers) as response:
            document = await response.json()
            assert response.status == 401
        assert_openai_error(document, code="invalid_api_key", type="invalid_request_error", param=None)
        bodies.add((str(document), response.headers["WWW-Authenticate"], response.headers["x-should-retry"]))

    assert len(bodies) == 1


async def test_a_token_in_the_address_opens_nothing_and_is_not_logged(start_gateway, capsys):
    gateway = await start_gateway(tokens=TOKENS)
    for path in (f"/v1/models?token={READ}", f"/v1/models?api_key={READ}", f"/v1/{READ}"):
        assert (await gateway.get(path))[0] == 401
    async with gateway.client.get(
        f"{gateway.url}/v1/{READ}", headers=bearer(READ) | {"X-Request-Id": READ}
    ) as response:
        text = await response.text()

    assert response.status == 404
    assert READ not in text and READ not in str(response.headers)
    told = capsys.readouterr()
    assert "path=/v1/sk-swarm-***" in told.out and READ not in told.out + told.err


@pytest.mark.parametrize(
    ("method", "path", "needed"),
    [
        ("GET", "/v1/models", "read"),
        ("GET", "/metrics", "read"),
        ("GET", "/api/v1/openapi.json", "read"),
        ("POST", "/v1/chat/completions", "operate"),
        ("POST", "/api/v1/models/tiny/load", "operate"),
        ("POST", "/api/v1/api-tokens", "admin"),
    ],
)
async def test_a_token_without_the_scope_gets_403_that_names_it(start_gateway, method, path, needed):
    gateway = await start_gateway(tokens=TOKENS)
    order = [("read", READ), ("operate", OPERATE), ("admin", ADMIN)]
    may = [name for name, _ in order].index(needed)
    for at, (_, token) in enumerate(order):
        async with gateway.client.request(method, gateway.url + path, headers=bearer(token)) as response:
            document = await response.json() if response.content_type == "application/json" else {}
        if at < may:
            assert response.status == 403
            assert repr(needed) in document["error"]["message"]
            assert document["error"]["type"] == "permission_error"
        else:
            assert response.status not in (401, 403), token


async def test_the_token_goes_with_every_call_to_the_leader(start_gateway):
    gateway = await start_gateway(tokens=TOKENS)
    body = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "stream": True}
    url = gateway.url + "/v1/chat/completions"

    async def ask(token: str) -> int:
        async with gateway.client.post(url, json=body, headers=bearer(token)) as response:
            await response.read()
            return response.status

    assert await asyncio.gather(*(ask(token) for token in (OPERATE, ADMIN, OPERATE))) == [200] * 3
    assert sorted(token for rpc, token in gateway.leader.presented if rpc == "Generate") == [ADMIN, OPERATE, OPERATE]
    assert {request.generation.caller for request in gateway.leader.asked} == {"tok_oper", "tok_admi"}


async def test_a_token_is_asked_about_once_for_many_requests(start_gateway):
    gateway = await start_gateway(tokens=TOKENS)

    async def ask(token: str) -> int:
        async with gateway.client.get(gateway.url + "/api/v1/openapi.json", headers=bearer(token)) as response:
            return response.status

    tokens = [READ, "sk-swarm-none"] * 20
    assert sorted(await asyncio.gather(*map(ask, tokens))) == [200] * 20 + [401] * 20
    assert [rpc for rpc, _ in gateway.leader.presented] == ["GetSelf"] * 2


async def test_a_revoked_token_is_refused_at_once_where_the_leader_is_asked(start_gateway):
    gateway = await start_gateway(tokens=TOKENS)
    async with gateway.client.get(gateway.url + "/v1/models", headers=bearer(READ)) as response:
        assert response.status == 200
    del gateway.leader.tokens[READ]
    for path in ("/v1/models", "/metrics"):  # and then everywhere
        async with gateway.client.get(gateway.url + path, headers=bearer(READ)) as response:
            assert response.status == 401
            assert_openai_error(await response.json(), code="invalid_api_key")


async def test_the_first_token_closes_an_open_gateway(start_gateway):
    gateway = await start_gateway()
    assert (await gateway.get("/v1/models"))[0] == 200
    gateway.leader.tokens.update(TOKENS)

    assert (await gateway.get("/v1/models"))[0] == 401


async def test_a_leader_that_is_away_is_503_and_never_401(start_gateway):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, not listening: connections are refused
        gateway = await start_gateway(leader_address=f"127.0.0.1:{taken.getsockname()[1]}")
        for headers in ({}, bearer(READ)):
            for path in ("/v1/models", "/metrics", "/v2/nothing"):
                async with gateway.client.get(gateway.url + path, headers=headers) as response:
                    assert response.status == 503
                    assert response.headers["Retry-After"]


async def test_figures_of_a_known_reader_go_on_while_the_leader_is_away(start_gateway):
    gateway = await start_gateway(tokens=TOKENS)
    url = gateway.url + "/metrics"
    async with gateway.client.get(url, headers=bearer(READ)) as response:
        assert response.status == 200
    await gateway.leader_server.stop(0)
    await asyncio.sleep(access.KNOWN_S + 0.1)

    async with gateway.client.get(url, headers=bearer(READ)) as response:
        assert response.status == 200
    async with gateway.client.get(url, headers=bearer(ADMIN)) as response:
        assert response.status == 503


async def test_a_leader_from_before_tokens_is_open(start_gateway):
    gateway = await start_gateway(knows_tokens=False)

    assert (await gateway.get("/v1/models"))[0] == 200
    async with gateway.client.get(gateway.url + "/v1/models", headers=bearer("anything")) as response:
        assert response.status == 200


async def test_a_gateway_beyond_this_machine_is_closed_while_its_leader_is_open(start_gateway):
    """Whoever reaches it could use the machines; on loopback only this one can."""
    gateway = await start_gateway(host="0.0.0.0")
    status, document = await gateway.get("/v1/models")

    assert status == 403
    assert "swarm tokens create" in document["error"]["message"]
    gateway.leader.tokens.update(TOKENS)
    await asyncio.sleep(access.KNOWN_S + 0.1)
    async with gateway.client.get(gateway.url + "/v1/models", headers=bearer(READ)) as response:
        assert response.status == 200


class CountedLeader:
    """Knows one token, and counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    async def call(self, method, request, timeout_s):
        self.asked += 1
        if self.asked > 1:
            raise Unauthenticated("no")
        return tokens_pb2.GetSelfResponse(enforced=True, token=tokens_pb2.ApiToken(token_id="t", scopes=["read"]))


async def test_made_up_tokens_push_no_real_one_out():
    """A flood of them costs the leader a question each, and the gateway a bounded place."""
    leader = CountedLeader()
    keeper = access.Doorkeeper(leader, lambda: 1000.0)
    await keeper.admit([f"Bearer {READ}"])
    for number in range(2 * access.KEPT_MAX):
        with pytest.raises(Unauthenticated):
            await keeper.admit([f"Bearer made-up-{number}"])
    asked = leader.asked

    assert (await keeper.admit([f"Bearer {READ}"])).token_id == "t"
    assert leader.asked == asked == 1 + 2 * access.KEPT_MAX
    with pytest.raises(Unauthenticated):
        await keeper.admit(["Bearer made-up-0"])  # forgotten long ago, so asked about again
    assert leader.asked == asked + 1
