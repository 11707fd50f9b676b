"""A fellow's figures for Prometheus: over its own port, from what its parts know."""

import asyncio
import socket
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from swarm_core.errors import BadRequest
from swarm_fellow.config import read_config

from tests.integration.fellow.running_fellow import running_fellow
from tests.integration.fellow.scripted_leader import ScriptedLeader, TinyModel, eventually

ONE = TinyModel()


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


async def figures(port: int) -> dict[tuple[str, ...], float]:
    """Every sample: its name and the values of its labels, labels by name -> its value."""

    def scrape() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            return answer.read().decode()

    families = text_string_to_metric_families(await asyncio.to_thread(scrape))
    samples = [sample for family in families for sample in family.samples]
    return {(s.name.removeprefix("silentswarm_fellow_"), *s.labels.values()): s.value for s in samples}


async def connected_figures(port: int) -> dict[tuple[str, ...], float]:
    """The figures once the fellow has read its welcome, which a leader has sent a moment before."""
    async with asyncio.timeout(10):
        while not (found := await figures(port))["connected",]:
            await asyncio.sleep(0.02)
    return found


async def test_figures_of_stages_come_and_go_with_them(tmp_path: Path):
    leader, port = ScriptedLeader(ONE), free_port()
    await leader.start()
    metrics = {"SWARM_METRICS_LISTEN": f"127.0.0.1:{port}"}
    async with running_fellow(leader.address, tmp_path, habits="tells-figures", **metrics):
        fellow = await leader.connection()
        before = await connected_figures(port)
        await fellow.load(ONE.spec("p1"))
        await eventually(lambda: fellow.stages() and fellow.stages()[0].sessions, "a heartbeat has its figures")
        loaded, status = await figures(port), fellow.stages()[0]
        stream = await leader.stream()
        stream.request("r1", "die")
        await stream.reply("r1")
        await eventually(lambda: not fellow.stages(), "the stage is gone")
        crashed = await figures(port)

    label = ("tiny/one", "0")
    assert (before["connected",], before["stages",], before["fetched_bytes_total",]) == (1, 0, 0)
    assert not [key for key in before if label[0] in key]
    assert loaded["stages",] == 1
    assert loaded["fetched_bytes_total",] == ONE.slice_bytes(0, 2)
    assert loaded["cache_bytes",] > 0.9 * ONE.slice_bytes(0, 2)  # without the small files
    assert loaded["num_sessions_running", *label] == status.sessions
    assert loaded["num_requests_waiting", *label] == status.waiting
    assert loaded["kv_cache_usage_perc", *label] == status.kv_tokens_used / status.kv_tokens_max
    assert loaded["generation_tokens_total", *label] == status.generated_tokens
    assert loaded["stage_busy_seconds_total", *label] == status.busy_s
    assert (loaded["stage_crashes_total",], crashed["stage_crashes_total",], crashed["stages",]) == (0, 1, 0)
    assert loaded["event_loop_lag_seconds_count",] > 0


async def test_a_leader_that_comes_back_is_counted_and_figures_need_none(tmp_path: Path):
    leader, port = ScriptedLeader(ONE), free_port()
    await leader.start()
    async with running_fellow(leader.address, tmp_path, SWARM_METRICS_LISTEN=f"127.0.0.1:{port}"):
        await leader.stream()
        await leader.stop()
        alone = await figures(port)
        await leader.start()
        await leader.connection(2)
        deadline_s = asyncio.get_running_loop().time() + 10
        while not (again := await figures(port))["connected",] and asyncio.get_running_loop().time() < deadline_s:
            await asyncio.sleep(0.05)

    assert alone["leader_reconnects_total",] == 0
    assert again["leader_reconnects_total",] == 1 and again["connected",] == 1


async def test_an_inference_link_that_broke_alone_is_counted_and_stays_counted(tmp_path: Path):
    """A counter that goes back would look like a restart, and its next value like as many breaks again."""
    leader, port = ScriptedLeader(ONE), free_port()
    await leader.start()
    async with running_fellow(leader.address, tmp_path, SWARM_METRICS_LISTEN=f"127.0.0.1:{port}"):
        (await leader.stream()).down.put_nowait(None)
        await leader.stream(2)
        broken = await figures(port)
        leader.connections[0].down.put_nowait(None)
        await leader.connection(2)
        again = [await figures(port) for _ in range(3)]
        await leader.stream(3)
        again.append(await figures(port))

    assert broken["inference_link_reconnects_total",] == 1
    assert min(each["inference_link_reconnects_total",] for each in again) >= 1


async def test_a_taken_port_ends_the_fellow_with_a_sentence(tmp_path: Path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(BadRequest, match="SWARM_METRICS_LISTEN"):
            async with running_fellow("127.0.0.1:1", tmp_path, SWARM_METRICS_LISTEN=listen):
                await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("SWARM_METRICS_LISTEN", "0.0.0.0:9100"),
        ("SWARM_METRICS_LISTEN", "9100"),
        ("SWARM_SERVE_ATTENTION", "flash"),
        ("SWARM_SERVE_MAX_BATCH", "-2"),
        ("SWARM_SERVE_MAX_BATCH", "1025"),
        ("SWARM_SERVE_STEP_COSTS", "maybe"),
        ("SWARM_SERVE_4BIT_ROWS", "8"),
        ("SWARM_SERVE_4BIT_ROWS", "on"),
        ("SWARM_SERVE_4BIT_FLOAT32", "3"),
    ],
)
def test_a_variable_that_cannot_be_is_refused_by_name(variable: str, value: str):
    with pytest.raises(BadRequest, match=variable):
        read_config({"SWARM_LEADER": "127.0.0.1:50551", variable: value})
