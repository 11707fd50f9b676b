"""PURGE and UPDATE at a fellow: stages end, the cache is emptied, the program starts anew once that was told."""

import asyncio
import sys
from pathlib import Path

import psutil
import pytest
from silentswarm.core.v1 import reason_pb2
from silentswarm.fellow.v1 import fellow_link_pb2 as link_pb2

from tests.integration.fellow.running_fellow import environment, running_fellow, stage_pids
from tests.integration.fellow.scripted_leader import ScriptedLeader, TinyModel, eventually

ONE, TWO = TinyModel("tiny/one"), TinyModel("tiny/two")
PURGE = dict(purge=link_pb2.PurgeSignal())


def files_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and path.name != "lock"]


async def test_a_purge_ends_every_stage_empties_the_cache_and_keeps_the_link(tmp_path: Path):
    leader = ScriptedLeader(ONE, TWO)
    await leader.start()
    async with running_fellow(leader.address, tmp_path, SWARM_MAX_LOADED_MODELS="2"):
        fellow = await leader.connection()
        await fellow.load(ONE.spec("p1"))
        await fellow.load(TWO.spec("p2"))
        cached = len(files_below(tmp_path / "models"))
        answer = await fellow.ask(**PURGE)
        left, stages = files_below(tmp_path / "models"), stage_pids()
        again = await fellow.load(ONE.spec("p3"))

    assert answer.WhichOneof("outcome") == "acknowledged" and len(leader.connections) == 1
    assert cached > 10 and left == [] and stages == []
    assert again.fetched_bytes == ONE.slice_bytes(0, 2)


async def test_a_purge_gives_up_a_load_that_runs(tmp_path: Path):
    leader = ScriptedLeader(ONE)
    await leader.start()
    leader.hold_after_bytes = 0
    async with running_fellow(leader.address, tmp_path):
        fellow = await leader.connection()
        load_id = fellow.send(load=link_pb2.LoadSignal(spec=ONE.spec("p1")))
        await eventually(lambda: list((tmp_path / "models").rglob("*.part")), "the load has begun")
        answer = await fellow.ask(**PURGE)
        load = await fellow.result(load_id)

    assert answer.WhichOneof("outcome") == "acknowledged"
    assert load.failure.reason == reason_pb2.REASON_CANCELLED
    assert files_below(tmp_path / "models") == []


async def test_a_purge_leaves_what_another_fellow_of_the_machine_uses(tmp_path: Path):
    leader = ScriptedLeader(ONE, TWO)
    await leader.start()
    cache = str(tmp_path / "models")
    async with (
        running_fellow(leader.address, tmp_path / "a", SWARM_FELLOW_MODEL_CACHE=cache),
        running_fellow(leader.address, tmp_path / "b", SWARM_FELLOW_MODEL_CACHE=cache),
    ):
        first, second = await leader.connection(1), await leader.connection(2)
        await first.load(ONE.spec("p1"))
        used = {path.name for path in (tmp_path / "models" / "tensors").iterdir()}
        await second.load(TWO.spec("p2"))
        await second.ask(**PURGE)
        left = {path.name for path in (tmp_path / "models" / "tensors").iterdir()}
        await first.ask(unload=link_pb2.UnloadSignal(placement_id="p1"))
        again = await first.load(ONE.spec("p3"))

    assert left == used and again.fetched_bytes == 0


@pytest.mark.parametrize("as_module", [True, False], ids=["module", "script"])
async def test_an_update_is_acknowledged_then_the_same_command_line_starts_anew_in_the_same_process(
    tmp_path: Path, as_module: bool
):
    leader = ScriptedLeader(ONE)
    await leader.start()
    script = Path(sys.executable).with_name("swarm-fellow")
    program = [sys.executable, "-m", "swarm_fellow"] if as_module else [str(script)]
    environ = environment() | {"SWARM_FELLOW_MODEL_CACHE": str(tmp_path / "models")}
    command = [*program, "--leader", leader.address, "--name", "kitchen", "--state-dir", str(tmp_path / "state")]
    process = await asyncio.create_subprocess_exec(*command, env=environ)
    try:
        before = await leader.connection()
        await before.load(ONE.spec("p1"))
        (stage,) = stage_pids(process.pid)
        answer = await before.ask(update=link_pb2.UpdateSignal())
        after = await leader.connection(2)
        await after.load(ONE.spec("p2"))
        command_line = psutil.Process(process.pid).cmdline()
    finally:
        process.terminate()
        code = await asyncio.wait_for(process.wait(), 20)

    assert answer.WhichOneof("outcome") == "acknowledged" and not psutil.pid_exists(stage)
    assert command_line[-len(command) + 1 :] == command[1:]
    assert after.register.identity == before.register.identity and list(after.register.held) == []
    assert after.register.process_nonce != before.register.process_nonce
    assert code == 0
