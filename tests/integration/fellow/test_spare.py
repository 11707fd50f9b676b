"""A spare stage process: there while a stage is held, taken by the next load, gone with the last stage."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import psutil
import pytest
from silentswarm.fellow.v1 import fellow_link_pb2 as link_pb2
from swarm_fellow.host.stage_process import StageHost

from tests.integration.fellow.running_fellow import environment, running_fellow, stage_pids
from tests.integration.fellow.scripted_leader import ScriptedLeader, TinyModel, eventually

ONE, TWO = TinyModel("tiny/one"), TinyModel("tiny/two")


def spares() -> list[int]:
    """Stage processes that were started ahead of a load."""
    return [pid for pid in stage_pids() if "--import-ahead" in psutil.Process(pid).cmdline()]


async def until_spare(but: tuple[int, ...] = ()) -> int:
    """A spare whose socket answers, other than these."""
    await eventually(lambda: set(spares()) - set(but), "a spare was started")
    return (set(spares()) - set(but)).pop()


async def test_a_load_takes_the_spare_and_the_next_one_comes_when_all_is_quiet(tmp_path: Path):
    leader = ScriptedLeader(ONE, TWO)
    await leader.start()
    async with running_fellow(leader.address, tmp_path, SWARM_STAGE_SPARE="on", SWARM_MAX_LOADED_MODELS="2") as here:
        here.maintenance.spare.quiet_s = 0.1
        fellow = await leader.connection()
        none_before = stage_pids()
        await fellow.load(ONE.spec("p1"))
        first = stage_pids()
        spare = await until_spare()
        await eventually(lambda: here.maintenance.spare.is_ready, "the spare answers")
        await fellow.load(TWO.spec("p2"))
        stages = {held.process.pid for held in here.table.loaded()}
        await until_spare(but=(spare,))
        log = (tmp_path / "state" / "logs" / "tiny--two-stage-0.log").read_text()

    assert none_before == [] and len(first) == 1
    assert stages == {*first, spare}
    assert "told:" in log


async def test_a_spare_outlives_a_crash_and_neither_an_unload_nor_a_stop(tmp_path: Path):
    leader = ScriptedLeader(ONE)
    await leader.start()
    async with running_fellow(leader.address, tmp_path, SWARM_STAGE_SPARE="on") as here:
        here.maintenance.spare.quiet_s = 0.1
        fellow = await leader.connection()
        await fellow.load(ONE.spec("p1"))
        spare = await until_spare()
        await eventually(lambda: here.maintenance.spare.is_ready, "the spare answers")
        os.kill(here.table.loaded()[0].process.pid, signal.SIGKILL)
        await eventually(lambda: fellow.events, "the crash was told")
        await fellow.load(ONE.spec("p2"))
        again = here.table.loaded()[0].process.pid
        await until_spare(but=(spare,))
        await fellow.ask(unload=link_pb2.UnloadSignal(placement_id="p2"))
        await eventually(lambda: stage_pids() == [], "the spare ended after the last stage")
        await fellow.load(ONE.spec("p3"))
        await until_spare()
        stopped = await fellow.ask(stop=link_pb2.StopSignal())
        after_stop = stage_pids()

    assert again == spare
    assert stopped.HasField("acknowledged") and after_stop == []


async def test_a_spare_that_dies_or_hangs_costs_a_load_nothing_but_time(tmp_path: Path):
    leader = ScriptedLeader(ONE, TWO)
    await leader.start()
    async with running_fellow(leader.address, tmp_path, SWARM_STAGE_SPARE="on", SWARM_MAX_LOADED_MODELS="2") as here:
        here.maintenance.spare.quiet_s = 0.1
        fellow = await leader.connection()
        await fellow.load(ONE.spec("p1"))
        spare = await until_spare()
        await eventually(lambda: here.maintenance.spare.is_ready, "the spare answers")
        os.kill(spare, signal.SIGSTOP)
        await fellow.load(TWO.spec("p2"))
        pids = stage_pids()
        held = [stage.spec.placement_id for stage in here.table.loaded()]

    assert held == ["p1", "p2"] and spare not in pids


async def test_a_load_waits_for_a_spare_that_starts_instead_of_starting_another_beside_it(tmp_path: Path):
    host = StageHost((sys.executable, "-m", "swarm_stage", "serve"), tmp_path, environment())
    try:
        starting = asyncio.create_task(host.prepare_spare())
        while not (begun := stage_pids()):
            await asyncio.sleep(0.01)
        taken = await host.start("m-stage-0")
        at_the_end, left = stage_pids(), host.spare
    finally:
        await host.close()

    assert at_the_end == begun == [taken.pid] and left is None
    assert (await starting) is taken


async def test_a_load_whose_spare_is_called_off_while_it_starts_begins_a_process_of_its_own(tmp_path: Path):
    host = StageHost((sys.executable, "-m", "swarm_stage", "serve"), tmp_path, environment())
    try:
        starting = asyncio.create_task(host.prepare_spare())
        while not stage_pids():
            await asyncio.sleep(0.01)
        loading = asyncio.create_task(host.start("m-stage-0"))
        await asyncio.sleep(0)
        starting.cancel()
        taken = await loading
        await asyncio.wait({starting})
        left = stage_pids()
    finally:
        await host.close()

    assert starting.cancelled() and left == [taken.pid]


@pytest.mark.slow
async def test_a_real_spare_answers_once_it_has_imported_and_is_of_no_lower_priority_then(tmp_path: Path):
    """Priority that a process gave up would be the stage's for good."""
    host = StageHost((sys.executable, "-m", "swarm_stage", "serve"), tmp_path, dict(os.environ))
    try:
        spare = await host.prepare_spare()
        mapped = Path(f"/proc/{spare.pid}/maps").read_text()
        niceness = os.getpriority(os.PRIO_PROCESS, spare.pid)
        taken = await host.start("m-stage-0")
    finally:
        await host.close()

    assert "libtorch" in mapped and niceness == os.getpriority(os.PRIO_PROCESS, 0)
    assert taken is spare
