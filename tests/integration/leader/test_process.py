"""The process itself: starts, says so, refuses what it must, stops in order. Real processes, real signals."""

import asyncio
import os
import re
import signal
import stat
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from silentswarm.leader.v1 import serving_pb2, serving_pb2_grpc, status_pb2, status_pb2_grpc
from silentswarm.relay.v1 import relay_pb2, relay_pb2_grpc
from swarm_core.errors import BadRequest
from swarm_leader.config import LeaderConfig, check
from swarm_rpc.channel import dial
from swarm_rpc.server import listen, make_server

from tests.integration.leader.rig import MODEL, running_leader, write_servable
from tests.integration.leader.scripted_fellow import ScriptedFellow, joined
from tests.unit.leader.model_facts import make_manifest

START_S = 30.0


def environ(tmp_path, **variables):
    """A clean environment with a leader on a free port."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("SWARM_")}
    return {**own, "SWARM_DATA_DIR": str(tmp_path), "SWARM_GRPC_PORT": "0", "SWARM_MIN_FREE_DISK_GB": "0", **variables}


def run_once(tmp_path, *arguments, **variables):
    """A start that is expected to end by itself."""
    command = [sys.executable, "-m", "swarm_leader", *arguments]
    return subprocess.run(
        command, env=environ(tmp_path, **variables), capture_output=True, text=True, timeout=START_S, check=False
    )


@asynccontextmanager
async def started(
    tmp_path, *arguments, said=None, **variables
) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """A process that said it is ready, and its address. said: gets the lines until then."""
    command = [sys.executable, "-m", "swarm_leader", *arguments]
    process = await asyncio.create_subprocess_exec(
        *command, env=environ(tmp_path, **variables), stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(START_S):
            line = ""
            while " ready on " not in line:
                line = (await process.stderr.readline()).decode()
                assert line, "the process ended before it was ready"
                if said is not None:
                    said.append(line)
        yield process, line.split(" ready on ")[1].split()[0]
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def check_health(channel, service=""):
    """The state health reports."""
    answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service=service))
    return health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)


async def test_a_leader_starts_answers_and_stops_with_exit_code_0(tmp_path):
    async with started(tmp_path) as (process, address):
        channel = dial(address)
        assert await check_health(channel) == "SERVING"
        assert await check_health(channel, "silentswarm.leader.v1.Inference") == "SERVING"
        ready = await status_pb2_grpc.StatusStub(channel).GetReady(status_pb2.GetReadyRequest())
        health = await status_pb2_grpc.StatusStub(channel).GetHealth(status_pb2.GetHealthRequest())
        assert (ready.ready, list(ready.reasons)) == (True, [])
        assert health.uptime_s > 0
        assert health.version
        await channel.close()

        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(10):
            assert await process.wait() == 0


async def test_swarm_beside_a_leader_with_tls_and_tokens_needs_neither_set(tmp_path):
    folder = tmp_path / "leader"
    async with started(folder, "--host", "0.0.0.0", SWARM_DATA_DIR=str(folder)) as (_, address):
        port = address.rpartition(":")[2]
        here = environ(folder, SWARM_LEADER=f"127.0.0.1:{port}")
        command = [sys.executable, "-m", "swarm_cli", "--json", "tokens", "self"]
        shown = await asyncio.to_thread(subprocess.run, command, env=here, capture_output=True, text=True, timeout=30)

    assert (shown.returncode, shown.stderr) == (0, "")
    assert "made by the leader" in shown.stdout
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


async def test_a_leader_with_a_connected_fellow_stops_in_time(tmp_path):
    async with started(tmp_path) as (process, address), joined(address, ScriptedFellow("kitchen")) as (kitchen,):
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(5):
            assert await process.wait() == 0
            while kitchen.is_connected:
                await asyncio.sleep(0.02)

        assert kitchen.error.code() is grpc.StatusCode.UNAVAILABLE


async def test_reflection_lists_every_service(tmp_path):
    async def ask():
        yield reflection_pb2.ServerReflectionRequest(list_services="")

    async with running_leader(tmp_path) as rig:
        stub = reflection_pb2_grpc.ServerReflectionStub(rig.channel)
        answers = [answer async for answer in stub.ServerReflectionInfo(ask())]

    names = {service.name for service in answers[0].list_services_response.service}
    assert {
        "silentswarm.leader.v1.Inference",
        "silentswarm.fellow.v1.FellowLink",
        "silentswarm.relay.v1.Relay",
    } <= names


async def test_a_second_leader_on_the_port_or_the_folder_is_told_why(tmp_path):
    async with started(tmp_path / "one") as (_, address):
        port = address.rpartition(":")[2]
        same_port = await asyncio.to_thread(run_once, tmp_path / "two", SWARM_GRPC_PORT=port)
        same_folder = await asyncio.to_thread(run_once, tmp_path / "one")

    assert same_port.returncode == 1
    assert same_port.stderr.startswith(f"swarm-leader: cannot listen on 127.0.0.1:{port}: the port is taken")
    assert same_port.stderr.count("\n") == 1  # and not a line of grpc's own
    assert same_folder.returncode == 1
    assert "another leader uses" in same_folder.stderr


def test_it_listens_beyond_this_machine_without_tls_only_when_told_to(tmp_path):
    refused = run_once(tmp_path, "--host", "0.0.0.0", SWARM_TLS="0")

    assert refused.returncode == 2
    assert "SWARM_ALLOW_INSECURE=1" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_setting_that_cannot_work_is_named(tmp_path):
    lease = run_once(tmp_path, SWARM_LEASE_S="2")
    port = run_once(tmp_path, SWARM_GRPC_PORT="many")

    assert "SWARM_LEASE_S=2 must be longer than SWARM_HEARTBEAT_S=3" in lease.stderr
    assert "SWARM_GRPC_PORT='many' is not a number" in port.stderr
    assert (lease.returncode, port.returncode) == (2, 2)


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        ("ann=3,bob=much", "SWARM_CALLER_WEIGHTS: 'bob=much': write NAME=WEIGHT with a weight of 0.001 to 1000"),
        ("ann=0", "SWARM_CALLER_WEIGHTS: 'ann=0': write NAME=WEIGHT with a weight of 0.001 to 1000"),
        ("ann", "SWARM_CALLER_WEIGHTS: 'ann': write NAME=WEIGHT with a weight of 0.001 to 1000"),
        ("ann=nan", "SWARM_CALLER_WEIGHTS: 'ann=nan': write NAME=WEIGHT with a weight of 0.001 to 1000"),
        ("a b=1", "SWARM_CALLER_WEIGHTS: 'a b=1': a caller has 1 to 64 letters, digits or _.:-"),
        ("ann=1,ann=2", "SWARM_CALLER_WEIGHTS: 'ann=2': ann is named twice"),
    ],
)
def test_weights_that_cannot_be_read_are_named_with_their_entry(weights, words):
    with pytest.raises(BadRequest) as refused:
        check(LeaderConfig(caller_weights=weights))

    assert refused.value.message == words


@pytest.mark.parametrize("batch_max", [-2, 1025, 2**32])
def test_a_batch_cap_that_no_stage_could_be_told_is_refused(batch_max):
    with pytest.raises(BadRequest, match=f"SWARM_SERVE_MAX_BATCH={batch_max} must be in 1..1024"):
        check(LeaderConfig(batch_max=batch_max))


def test_weights_are_read_once_they_are_right():
    assert check(LeaderConfig(caller_weights=" ann=3, b.o:b-1=0.5,")).weights == {"ann": 3.0, "b.o:b-1": 0.5}


def test_metrics_beyond_this_machine_are_refused_like_any_other_listener(tmp_path):
    refused = run_once(tmp_path, SWARM_METRICS_LISTEN="0.0.0.0:9464")

    assert refused.returncode == 2
    assert "SWARM_METRICS_LISTEN: will not listen on 0.0.0.0" in refused.stderr


@pytest.mark.parametrize("arguments", [(), ("relay",)])
async def test_metrics_are_answered_on_the_port_that_is_logged_and_no_longer_after_the_stop(tmp_path, arguments):
    said = []
    async with started(tmp_path, *arguments, said=said, SWARM_METRICS_LISTEN="127.0.0.1:0") as (process, _):
        (url,) = re.findall(r"metrics on (http://\S+)", "".join(said))
        text = await asyncio.to_thread(read_url, url)
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(10):
            assert await process.wait() == 0

    assert "silentswarm_relay_lanes 0.0" in text
    assert "silentswarm_leader_event_loop_lag_seconds_count" in text
    assert "process_resident_memory_bytes" in text
    with pytest.raises(OSError):
        read_url(url)


def read_url(url: str) -> str:
    """What a scrape gets."""
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode()


@pytest.mark.parametrize("variable", ["SWARM_DATA_DIR", "SWARM_SERVABLE_MODELS_ROOT"])
def test_a_folder_that_cannot_be_used_is_named_with_its_variable(tmp_path, variable):
    file = tmp_path / "file"
    file.write_text("")
    for folder, why in (
        ("/proc/x", "no such file or directory"),
        (str(file), "it is a file"),
        (str(file / "below"), "not a directory"),
    ):
        ended = run_once(tmp_path, **{variable: folder})

        assert ended.returncode == 2
        says = f"the folder {folder} cannot be used ({why}); set {variable} to one that can"
        assert ended.stderr == f"swarm-leader: {says}\n"


def test_help_lists_the_variables_with_their_defaults(tmp_path):
    shown = run_once(tmp_path, "--help")

    assert shown.returncode == 0
    assert "SWARM_JOIN_TOKEN" in shown.stdout
    assert "relay" in shown.stdout
    assert "longest conversation a model must take, tokens [4096]" in shown.stdout
    assert "address to listen on [127.0.0.1]" in shown.stdout
    assert "beyond loopback without TLS [0]" in shown.stdout


async def test_the_relay_runs_alone(tmp_path):
    async def attach(role):
        wanted = relay_pb2.Attach(lane="p1", channel="act", epoch=1, role=role)
        yield relay_pb2.AttachRequest(attach=wanted)
        if role == relay_pb2.ROLE_SENDER:
            yield relay_pb2.AttachRequest(payload=b"hello")
        await asyncio.sleep(START_S)

    async with started(tmp_path, "relay", SWARM_RELAY_MAX_FRAME_MB="8") as (process, address):
        channel = dial(address)
        stub = relay_pb2_grpc.RelayStub(channel)
        receiver = stub.Attach(attach(relay_pb2.ROLE_RECEIVER))
        accepted = await receiver.read()
        sender = stub.Attach(attach(relay_pb2.ROLE_SENDER))
        payload = await receiver.read()
        unknown = status_pb2_grpc.StatusStub(channel).GetHealth(status_pb2.GetHealthRequest())
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await unknown

        assert accepted.attached.payload_bytes_max == 8 * 2**20
        assert payload.payload == b"hello"
        assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
        assert await check_health(channel, "silentswarm.relay.v1.Relay") == "SERVING"
        sender.cancel()
        await channel.close()
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(10):
            assert await process.wait() == 0


async def test_a_full_disk_and_a_stopping_leader_are_not_ready(tmp_path):
    async with running_leader(tmp_path, min_free_disk_gb=1e9) as rig:
        full = await rig.status.GetReady(status_pb2.GetReadyRequest())
        rig.leader.health.phase = "stopping"
        stopping = await rig.status.GetReady(status_pb2.GetReadyRequest())

    assert not full.ready
    assert "GB free, 1000000000.0 GB needed" in full.reasons[0]
    assert stopping.reasons[0] == "stopping"


async def test_an_rpc_without_an_access_class_is_denied():
    async def answer(request, context):
        return request

    handler = grpc.unary_unary_rpc_method_handler(answer)
    server = make_server()
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("unclassified.Service", {"Call": handler})])
    port = listen(server, "127.0.0.1:0")
    await server.start()
    channel = dial(f"127.0.0.1:{port}")
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await channel.unary_unary("/unclassified.Service/Call")(b"x")
    await channel.close()
    await server.stop(None)

    assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
    assert "no access policy" in refused.value.details()


async def test_a_leader_that_was_stopped_for_longer_than_a_lease_keeps_its_fleet(tmp_path):
    """A suspended machine, or SIGSTOP: on waking, no heartbeat of that time has been read."""
    write_servable(tmp_path / "servable_models", make_manifest(context_tokens_max=512))
    lease = {"SWARM_LEASE_S": "1.5", "SWARM_HEARTBEAT_S": "0.2", "SWARM_SERVE_CONTEXT_TOKENS": "256"}
    fellows = ScriptedFellow("attic", 3 * 10**9), ScriptedFellow("kitchen", 2 * 10**9)
    async with started(tmp_path, **lease) as (process, address), joined(address, *fellows) as (attic, kitchen):
        channel = dial(address)
        serving = serving_pb2_grpc.ServingStub(channel)
        await serving.LoadModel(serving_pb2.LoadModelRequest(model_id=MODEL, num_stages=2))
        watched = [one async for one in serving.WatchModel(serving_pb2.WatchModelRequest(model_id=MODEL))]
        assert watched[-1].state == serving_pb2.PLACEMENT_STATE_READY, watched[-1].reason

        process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(3)  # the time itself is what is tested: two leases
        process.send_signal(signal.SIGCONT)
        await asyncio.sleep(1)  # several sweeps

        status = await serving.GetModelStatus(serving_pb2.GetModelStatusRequest(model_id=MODEL))
        assert status.state == serving_pb2.PLACEMENT_STATE_READY, status.reason
        assert attic.is_connected
        assert kitchen.is_connected
        await channel.close()
