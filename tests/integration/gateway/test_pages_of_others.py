"""Web pages that a browser on this network shows: those of the gateway and those allowed may use it, others may not."""

import pytest
from swarm_core.errors import BadRequest
from swarm_gateway.front.origins import door_rules

from tests.integration.gateway.test_failures import assert_openai_error

CHAT = "/v1/chat/completions"
BODY = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}
FRIEND, STRANGER = "https://chat.example", "https://evil.example"
PREFLIGHT = {
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization,content-type,x-stainless-os",
}


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8080",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "localhost@evil.example",
        "localhost:80:80",
        "169.254.169.254",
        "2130706433",
        "",
        "[::1",
        "localhost/",
    ],
)
async def test_a_foreign_name_for_this_machine_is_403(gateway, host):
    """F14: a site may let its own name point here; browsers then think this gateway is that site."""
    for method, path in (("GET", "/"), ("GET", "/v1/models"), ("POST", CHAT), ("GET", "/nothing"), ("OPTIONS", CHAT)):
        async with gateway.client.request(method, gateway.url + path, headers={"Host": host}, json=BODY) as response:
            document = await response.json()
        assert response.status == 403, (method, path)
        assert_openai_error(document, code="host_not_allowed", type="permission_error")
    assert gateway.leader.presented == []


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1", "127.9.9.9:80", "[::1]:8080", "localhost."])
async def test_this_machine_is_reached_under_its_own_names(gateway, host):
    async with gateway.client.get(gateway.url + "/v1/models", headers={"Host": host}) as response:
        assert response.status == 200


def test_more_names_are_listed_and_a_wildcard_bind_takes_every_address():
    rules = door_rules("0.0.0.0", "gpu.lan, Chat.Example", "")
    loopback = door_rules("127.0.0.1", "", "")

    assert all(map(rules.knows_host, ("gpu.lan:8080", "chat.example", "192.168.1.5:8080", "[fe80::1]", "localhost")))
    assert not any(map(rules.knows_host, ("evil.example", "x.gpu.lan", "")))
    assert not any(map(loopback.knows_host, ("192.168.1.5", "gpu.lan")))
    assert door_rules("192.168.1.5", "", "").knows_host("192.168.1.5:8080")
    assert door_rules("127.0.0.1", "*", "").knows_host("any.example")


@pytest.mark.parametrize(
    ("hosts", "origins"), [("a b", ""), ("gpu.lan:80", ""), ("", "chat.example"), ("", "https://a/b")]
)
def test_lists_that_cannot_be_meant_are_a_sentence(hosts, origins):
    with pytest.raises(BadRequest, match=r"SWARM_(ALLOWED_HOSTS|CORS_ORIGINS): "):
        door_rules("127.0.0.1", hosts, origins)


@pytest.mark.parametrize(
    "origin", [STRANGER, "null", "http://localhost", "http://127.0.0.1:1", "file://", "https://chat.example.evil"]
)
async def test_pages_of_strangers_get_nothing(start_gateway, origin):
    gateway = await start_gateway(cors_origins=FRIEND)
    for method, path in (
        ("POST", CHAT),
        ("GET", "/v1/models"),
        ("DELETE", "/api/v1/api-tokens/x"),
        ("GET", "/nothing"),
    ):
        async with gateway.client.request(
            method, gateway.url + path, headers={"Origin": origin}, json=BODY
        ) as response:
            document = await response.json()
        assert response.status == 403, (method, path)
        assert document["error"]["code"] == "origin_not_allowed"
        assert "Access-Control-Allow-Origin" not in response.headers
    async with gateway.client.options(gateway.url + CHAT, headers={"Origin": origin, **PREFLIGHT}) as response:
        assert response.status == 403
        assert not [name for name in response.headers if name.startswith("Access-Control")]
    assert gateway.leader.asked == gateway.leader.presented == []


async def test_the_gateways_own_page_may_use_it_also_behind_a_proxy_with_tls(gateway):
    host = gateway.url.removeprefix("http://")
    for origin in (f"http://{host}", f"https://{host}"):
        async with gateway.client.post(gateway.url + CHAT, json=BODY, headers={"Origin": origin}) as response:
            assert response.status == 200


async def test_a_preflight_needs_no_token_and_answers_what_the_page_asked(start_gateway):
    """Report 44, O51: browsers send it without any; its 401 was "Failed to fetch"."""
    gateway = await start_gateway(cors_origins=f"http://other.example, {FRIEND}", tokens={"sk-swarm-a": ("admin",)})
    async with gateway.client.options(gateway.url + CHAT, headers={"Origin": FRIEND, **PREFLIGHT}) as response:
        assert response.status == 204
        assert response.headers["Access-Control-Allow-Origin"] == FRIEND
        assert response.headers["Access-Control-Allow-Headers"] == PREFLIGHT["Access-Control-Request-Headers"]
        assert "POST" in response.headers["Access-Control-Allow-Methods"]
        assert "Access-Control-Allow-Credentials" not in response.headers
        assert "Origin" in response.headers["Vary"]
    async with gateway.client.options(gateway.url + CHAT, headers={"Origin": FRIEND}) as response:
        assert response.status == 401  # no preflight


@pytest.mark.parametrize(
    ("token", "path", "body", "status"),
    [
        ("sk-swarm-a", CHAT, BODY, 200),
        ("sk-swarm-a", CHAT, {**BODY, "stream": True}, 200),
        ("sk-swarm-b", CHAT, BODY, 401),
        ("sk-swarm-r", CHAT, BODY, 403),
        ("sk-swarm-a", CHAT, {}, 400),
        ("sk-swarm-a", "/v1/nothing", BODY, 404),
    ],
)
async def test_an_allowed_page_reads_every_reply_also_refusals(start_gateway, token, path, body, status):
    tokens = {"sk-swarm-a": ("admin",), "sk-swarm-r": ("read",)}
    gateway = await start_gateway(cors_origins=FRIEND, tokens=tokens)
    headers = {"Origin": FRIEND, "Authorization": f"Bearer {token}"}
    async with gateway.client.post(gateway.url + path, json=body, headers=headers) as response:
        await response.read()

    assert response.status == status
    assert response.headers["Access-Control-Allow-Origin"] == FRIEND
    assert "x-request-id" in response.headers["Access-Control-Expose-Headers"]


async def test_what_a_strangers_page_embeds_is_refused_and_a_link_is_not(gateway):
    """An image or a script says no origin, and starts what it names all the same."""
    for mode, status in (("no-cors", 403), ("navigate", 200)):
        headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": mode}
        async with gateway.client.get(gateway.url + "/v1/models", headers=headers) as response:
            assert response.status == status


@pytest.mark.parametrize(
    "path", ["/healthz", "/v1/models", "/metrics", "/nothing", "/api/v1/models/tiny/status/stream"]
)
async def test_replies_say_what_browsers_must_not_do_with_them(gateway, path):
    async with gateway.client.get(gateway.url + path) as response:
        headers = response.headers
        await response.read()

    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["Cache-Control"] in ("no-store", "no-cache")
    assert "aiohttp" not in headers["Server"]
