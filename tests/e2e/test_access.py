"""Who gets in where: every RPC of the leader's port and every route of the gateway, with every kind of credential.

The rows come from the descriptors and from the gateway's own table, what must come of them from the access class; an
RPC of machines, whose first message decides too, has a row of its own here. What has neither fails.
"""

import asyncio
import stat
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import psutil
import pytest
from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from silentswarm.core.v1 import access_pb2
from silentswarm.fellow.v1 import fellow_link_pb2, inference_link_pb2, logs_pb2, transfer_pb2
from silentswarm.leader.v1 import fleet_pb2, fleet_pb2_grpc, tokens_pb2, tokens_pb2_grpc
from silentswarm.relay.v1 import relay_pb2
from swarm_core.clock import SystemClock
from swarm_gateway.app import make_table
from swarm_gateway.config import GatewayConfig
from swarm_gateway.leader import Leader
from swarm_gateway.metrics import GatewayMetrics
from swarm_gateway.rest.services import leader_services
from swarm_rpc.channel import dial
from swarm_rpc.policy import access_of
from yarl import URL

from tests.e2e.swarm import Swarm, swarm_up

IN = "in"
UNAUTHENTICATED, DENIED = grpc.StatusCode.UNAUTHENTICATED.name, grpc.StatusCode.PERMISSION_DENIED.name
NO_STAGE = "holds no stage of"  # a machine that is let in, and asks for what is not its own
SCOPES = ("read", "operate", "admin")
NOBODY = ("none", "garbage", "expired", "revoked", "join token")
MACHINES = ("own", "another's")
STATES = (*NOBODY, *SCOPES, *MACHINES)
_NEEDED = {access_pb2.ACCESS_READ: 0, access_pb2.ACCESS_OPERATE: 1, access_pb2.ACCESS_ADMIN: 2}
MACHINE_SERVICES = (
    fellow_link_pb2.DESCRIPTOR.services_by_name["FellowLink"],
    inference_link_pb2.DESCRIPTOR.services_by_name["InferenceLink"],
    transfer_pb2.DESCRIPTOR.services_by_name["Transfer"],
    logs_pb2.DESCRIPTOR.services_by_name["FellowLogs"],
    relay_pb2.DESCRIPTOR.services_by_name["Relay"],
)
SHARED_SERVICES = (
    health_pb2.DESCRIPTOR.services_by_name["Health"],
    reflection_pb2.DESCRIPTOR.services_by_name["ServerReflection"],
)
# What a machine gets for its own credential, and for another machine's where it says who it is.
MACHINE_ROWS = {
    "/silentswarm.fellow.v1.FellowLink/Connect": (IN, DENIED),
    "/silentswarm.fellow.v1.InferenceLink/Serve": (IN, DENIED),
    "/silentswarm.fellow.v1.Transfer/GetManifest": (NO_STAGE, NO_STAGE),
    "/silentswarm.fellow.v1.Transfer/Fetch": (NO_STAGE, NO_STAGE),
    "/silentswarm.fellow.v1.FellowLogs/Push": (IN, IN),  # its lines are those of whoever calls
    "/silentswarm.relay.v1.Relay/Attach": (UNAUTHENTICATED, UNAUTHENTICATED),  # a ticket opens it, nothing else
}


@dataclass(frozen=True)
class Doors:
    """A swarm that asks for tokens, a secret for every state, and who the first machine is."""

    swarm: Swarm
    secrets: dict[str, str]
    fellow_id: str
    identity: str

    def metadata(self, state: str) -> tuple[tuple[str, str], ...]:
        """What a caller in this state sends."""
        secret = self.secrets[state]
        return (("authorization", f"Bearer {secret}"),) if secret else ()


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    """A leader, a gateway and two fellows as processes, which nobody gets into without a token."""
    environ = {"SWARM_REQUIRE_API_TOKEN": "1", "SWARM_HEARTBEAT_S": "0.5"}
    with swarm_up(tmp_path_factory.mktemp("doors"), "--no-model", env=environ) as swarm:
        secrets, fellow_id = asyncio.run(make_secrets(swarm))
        yield Doors(swarm, secrets, fellow_id, (swarm.data_dir / "fellow-1" / "identity").read_text().strip())


async def make_secrets(swarm: Swarm) -> tuple[dict[str, str], str]:
    """A secret for every state, and the id of fellow-1."""
    admin = (swarm.data_dir / "leader" / "admin-token").read_text().strip()
    metadata = (("authorization", f"Bearer {admin}"),)
    async with dial(swarm.grpc) as channel:
        tokens = tokens_pb2_grpc.TokensStub(channel)

        async def make(scope: str, expires_in_s: int = 0) -> tokens_pb2.CreateTokenResponse:
            request = tokens_pb2.CreateTokenRequest(label=scope, scopes=[scope], expires_in_s=expires_in_s)
            return await tokens.CreateToken(request, metadata=metadata)

        made = {scope: (await make(scope)).secret for scope in SCOPES}
        revoked, expired = await make("admin"), await make("admin", expires_in_s=1)
        await tokens.RevokeToken(tokens_pb2.RevokeTokenRequest(token_id=revoked.token.token_id), metadata=metadata)
        invited = await tokens.CreateJoinToken(tokens_pb2.CreateJoinTokenRequest(), metadata=metadata)
        listed = await fleet_pb2_grpc.FleetStub(channel).ListFellows(fleet_pb2.ListFellowsRequest(), metadata=metadata)
        while time.time() <= expired.token.expires_s:
            await asyncio.sleep(0.05)
    own, others = ((swarm.data_dir / name / "node-credential").read_text().strip() for name in ("fellow-1", "fellow-2"))
    secrets = {
        "none": "",
        "garbage": "sk-swarm-" + "x" * 43,
        "expired": expired.secret,
        "revoked": revoked.secret,
        "join token": invited.secret,
        **made,
        "own": own,
        "another's": others,
    }
    return secrets, next(fellow.fellow_id for fellow in listed.fellows if fellow.name == "fellow-1")


def must_come_of(method: str, state: str) -> str:
    """IN, the name of a code, or NO_STAGE. Raises KeyError for what has no row."""
    access = access_of(method)
    if access == access_pb2.ACCESS_PUBLIC:
        return IN
    if state in NOBODY:
        return UNAUTHENTICATED
    if access == access_pb2.ACCESS_NODE:
        return DENIED if state in SCOPES else MACHINE_ROWS[method][MACHINES.index(state)]
    if state in MACHINES:
        return DENIED
    return IN if SCOPES.index(state) >= _NEEDED[access] else DENIED


def every_rpc() -> dict[str, MethodDescriptor]:
    """ "/package.Service/Method" -> descriptor, of every service the leader's port should have."""
    services = (*leader_services(), *MACHINE_SERVICES, *SHARED_SERVICES)
    return {f"/{service.full_name}/{method.name}": method for service in services for method in service.methods}


def first_message(method: MethodDescriptor, doors: Doors) -> Any:
    """What a caller says first: as much as it takes to be judged, and nothing that changes the swarm."""
    message = message_factory.GetMessageClass(method.input_type)()
    if method.name == "Connect":
        message.register.identity = doors.identity
        message.register.name = "fellow-1"
        message.register.process_nonce = "not the process that runs"
    elif method.name == "Serve":
        message.hello.fellow_id = doors.fellow_id
    elif method.name == "Attach":
        message.attach.lane, message.attach.channel, message.attach.epoch = "p1", "act", 1
        message.attach.role = relay_pb2.ROLE_SENDER
    elif method.name == "ServerReflectionInfo":
        message.list_services = ""
    return message


async def what_comes_of(channel: grpc.aio.Channel, path: str, doors: Doors, state: str) -> str:
    """IN, the name of the code it is refused with, or NO_STAGE."""
    method = every_rpc()[path]
    raw, metadata = first_message(method, doors).SerializeToString(), doors.metadata(state)
    try:
        async with asyncio.timeout(2 if must_come_of(path, state) == IN else 30):
            await first_answer(channel, path, method, raw, metadata)
    except TimeoutError:
        return IN  # a link that is open, with nothing to say
    except grpc.aio.AioRpcError as refusal:
        if NO_STAGE in (refusal.details() or ""):
            return NO_STAGE
        seen_outside = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.INTERNAL)
        return refusal.code().name if refusal.code() in seen_outside else IN
    return IN


async def first_answer(
    channel: grpc.aio.Channel, path: str, method: MethodDescriptor, raw: bytes, metadata: tuple[tuple[str, str], ...]
) -> None:
    """Make the call and wait for its first answer. Raises AioRpcError."""
    if not method.server_streaming:
        await channel.unary_unary(path)(raw, metadata=metadata)
        return
    if method.client_streaming:
        call = channel.stream_stream(path)(metadata=metadata)
        await call.wait_for_connection()
        time.sleep(0.02)  # noqa: ASYNC251 - a busy client: refused before it speaks, it would lose the reason (INTERNAL)
        await call.write(raw)
    else:
        call = channel.unary_stream(path)(raw, metadata=metadata)
    try:
        if await call.read() is grpc.aio.EOF:
            raise AssertionError(f"{path} ended without an answer")
    finally:
        call.cancel()


async def test_every_rpc_lets_in_whom_its_class_allows_and_nobody_else(doors: Doors):
    wrong, walked = [], 0
    async with dial(doors.swarm.grpc) as channel:
        for path in every_rpc():
            came = await asyncio.gather(*(what_comes_of(channel, path, doors, state) for state in STATES))
            for state, outcome in zip(STATES, came, strict=True):
                walked += 1
                if outcome != must_come_of(path, state):
                    wrong.append(f"{path} with {state}: {outcome}, must be {must_come_of(path, state)}")

    assert wrong == []
    assert walked == len(every_rpc()) * len(STATES) > 300


async def test_the_leaders_port_has_no_service_without_rows(doors: Doors):
    async def ask() -> AsyncIterator[reflection_pb2.ServerReflectionRequest]:
        yield reflection_pb2.ServerReflectionRequest(list_services="")

    async with dial(doors.swarm.grpc) as channel:
        call = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(
            ask(), metadata=doors.metadata("admin")
        )
        answer = await call.read()
        call.cancel()

    served = {service.name for service in answer.list_services_response.service}
    assert served == {path.split("/")[1] for path in every_rpc()}


def every_route() -> list[tuple[str, str, int]]:
    """Method, a path that matches, access class: every endpoint of the gateway."""
    clock = SystemClock()
    channel = dial("127.0.0.1:1")  # never used
    table = make_table(GatewayConfig(), Leader(channel, ""), clock, "0", GatewayMetrics(clock.monotonic_s))
    return [(http_method, path_of(template.text), endpoint.access) for http_method, template, endpoint in table]


def path_of(template: str) -> str:
    """A path for a template: "x" for every variable."""
    while "{" in template:
        before, _, rest = template.partition("{")
        template = before + "x" + rest.partition("}")[2]
    return template.replace("**", "x").replace("*", "x")


def status_must_be(access: int, state: str, status: int) -> bool:
    """Whether a route answers as its class says."""
    if access == access_pb2.ACCESS_PUBLIC:
        return status not in (401, 403)
    if state in NOBODY:
        return status == 401
    if state in MACHINES or SCOPES.index(state) < _NEEDED[access]:
        return status == 403
    return status not in (401, 403)


async def test_every_route_lets_in_whom_its_class_allows_and_nobody_else(doors: Doors):
    wrong, routes = [], every_route()
    async with aiohttp.ClientSession(doors.swarm.http) as session:

        async def walk(http_method: str, path: str, access: int, state: str) -> None:
            headers = dict(doors.metadata(state))
            body = {} if http_method in ("POST", "PUT", "PATCH") else None
            async with asyncio.timeout(20), session.request(http_method, path, headers=headers, json=body) as answer:
                if not status_must_be(access, state, answer.status):
                    wrong.append(f"{http_method} {path} with {state}: {answer.status}")

        for route in routes:
            await asyncio.gather(*(walk(*route, state) for state in STATES))

    assert wrong == []
    assert len(routes) > 30


SPELLINGS = (
    "/{path}",
    "{path}/",
    "{upper}",
    "{path}?key={secret}",
    "{path}?token={secret}",
    "{escaped}",
    "{path}/../x",
)


async def test_no_spelling_of_a_route_gets_round_its_door(doors: Doors):
    """Also as HEAD, and with a token where none belongs: query strings end up in logs."""
    wrong = []
    locked = [(verb, path) for verb, path, access in every_route() if access != access_pb2.ACCESS_PUBLIC]
    async with aiohttp.ClientSession(doors.swarm.http) as session:

        async def walk(verb: str, path: str) -> None:
            url = URL(doors.swarm.http + path, encoded=True)
            async with asyncio.timeout(20), session.request(verb, url) as answer:
                if answer.status < 400:
                    wrong.append(f"{verb} {path}: {answer.status}")

        for verb, path in locked:
            words = {
                "path": path,
                "upper": path.upper(),
                "escaped": path[0] + path[1:].replace("/", "%2F"),
                "secret": doors.secrets["admin"],
            }
            paths = [spelling.format(**words) for spelling in SPELLINGS]
            verbs = {verb, "HEAD"} if verb == "GET" else {verb}
            await asyncio.gather(*(walk(one, spelled) for one in verbs for spelled in paths))

    assert wrong == []


def test_a_stages_socket_lies_where_only_its_user_gets(doors: Doors):
    for name in ("fellow-1", "fellow-2"):
        folders = [folder for folder in (doors.swarm.data_dir / name).iterdir() if folder.name == "run"]
        modes = {stat.S_IMODE(folder.stat().st_mode) for folder in folders} or run_modes(doors.swarm.processes[name])

        assert modes == {0o700}


def run_modes(pid: int) -> set[int]:
    """Modes of the folders in /tmp where a fellow whose state folder has a long name keeps its sockets."""
    uid = psutil.Process(pid).uids().real
    folders = [folder for folder in Path("/tmp").glob("swarm-*") if folder.is_dir() and folder.stat().st_uid == uid]
    return {stat.S_IMODE(folder.stat().st_mode) for folder in folders}


def test_no_secret_is_in_a_log_a_command_line_or_an_environment_it_is_not_needed_in(doors: Doors):
    """After everybody above has knocked: what they presented, and what the swarm made for itself."""
    secrets = {state: secret for state, secret in doors.secrets.items() if secret and state != "garbage"}
    secrets["leader's"] = (doors.swarm.data_dir / "leader" / "admin-token").read_text().strip()
    told = {log.name: log.read_text(errors="replace") for log in doors.swarm.data_dir.rglob("*.log")}
    processes = {name: psutil.Process(pid) for name, pid in doors.swarm.processes.items()}
    processes["supervisor"] = psutil.Process(doors.swarm.process.pid)
    for name, process in processes.items():
        told[f"command line of {name}"] = " ".join(process.cmdline())
        told[f"environment of {name}"] = "\n".join(process.environ().values())
    told["ready file"] = (doors.swarm.data_dir / "ready.json").read_text()
    joining = processes["fellow-1"].environ()["SWARM_JOIN_TOKEN"]

    found = [
        f"{state} in {where}" for where, text in told.items() for state, secret in secrets.items() if secret in text
    ]
    assert found == []
    assert {where for where, text in told.items() if joining in text} == {
        "environment of fellow-1",
        "environment of fellow-2",
    }
    assert len(told) > 10
