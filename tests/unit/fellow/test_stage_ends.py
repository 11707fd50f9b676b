"""Stages whose process will not go or will not answer: every wait ends, and what is not back is named."""

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from silentswarm.core.v1 import stage_pb2
from silentswarm.fellow.v1 import fellow_link_pb2 as link_pb2
from swarm_core.clock import ManualClock
from swarm_core.errors import LoadFailed, Unavailable
from swarm_fellow.flows.stages import StageLimits, StageTable
from swarm_fellow.host.stage_log import StageLog
from swarm_fellow.host.stage_process import EndTimes, StageHost, StageProcess

LIMITS = StageLimits(loaded_models_max=1, idle_unload_s=0, silent_max_s=30)


class UndyingChild:
    """A process in a call that cannot be interrupted: signals arrive and nothing happens."""

    pid, stdin, stdout = 4242, None, None

    def __init__(self) -> None:
        self.returncode: int | None = None
        self.signals: list[int] = []

    async def wait(self) -> None:
        await asyncio.Event().wait()

    def send_signal(self, number: int) -> None:
        self.signals.append(number)


class MuteClient:
    """The client of a process that answers nothing and whose fault watch breaks at once."""

    def __init__(self) -> None:
        self.watches = 0

    async def status(self) -> stage_pb2.StageStatus:
        raise Unavailable("no answer")

    async def watch_faults(self) -> AsyncIterator:
        self.watches += 1
        raise Unavailable("no answer")
        yield


class MuteProcess:
    """A process that lives until it is stopped, and does nothing else."""

    def __init__(self) -> None:
        self.client = MuteClient()
        self.has_ended = False

    async def wait(self) -> str:
        await asyncio.Event().wait()
        return "ended"


class MuteHost:
    """Starts mute processes; its list says which stopped ones linger."""

    def __init__(self) -> None:
        self.processes: list[MuteProcess] = []
        self.names_lingering: list[str] = []

    async def start(self, label: str) -> MuteProcess:
        self.processes.append(MuteProcess())
        return self.processes[-1]

    async def stop(self, process: MuteProcess) -> None:
        process.has_ended = True

    async def kill(self, process: MuteProcess) -> None:
        process.has_ended = True

    def lingering(self) -> list[str]:
        return self.names_lingering


def spec(placement_id: str) -> stage_pb2.StageSpec:
    return stage_pb2.StageSpec(placement_id=placement_id, model_id="m", stage_count=1, layer_stop=1)


async def test_a_process_that_outlives_sigkill_is_remembered_and_the_stop_goes_on(tmp_path: Path):
    times = EndTimes(terminate_s=0.05, kill_s=0.1, killed_s=0.1)
    child, host = UndyingChild(), StageHost(["true"], tmp_path, {}, times)
    stage = StageProcess("m-stage-0", child, tmp_path / "s1.sock", StageLog(tmp_path / "log"), times)
    await asyncio.wait_for(host.stop(stage), 5)
    lingering = host.lingering()
    child.returncode = -9

    assert child.signals == [signal.SIGTERM, signal.SIGKILL]
    assert lingering == ["m-stage-0"] and host.lingering() == []


async def test_a_load_that_needs_the_memory_of_a_killed_process_fails_with_its_name():
    host = MuteHost()
    table = StageTable(host, LIMITS, ManualClock(), lambda: 0.5)
    host.names_lingering = ["m-stage-0 (process 4242)"]
    with pytest.raises(LoadFailed, match=r"process 4242.*not gone"):
        await asyncio.wait_for(table.admit(spec("p1")), 5)
    host.names_lingering = []
    admitted = await asyncio.wait_for(table.admit(spec("p1")), 5)
    await table.end_all()

    assert admitted.spec.placement_id == "p1" and len(host.processes) == 1


async def test_a_stage_counts_as_crashed_after_30_s_of_unanswered_questions_and_not_before():
    clock, told = ManualClock(monotonic_s=5.0), []
    table = StageTable(MuteHost(), LIMITS, clock, lambda: 0.5)
    table.report_to(told.append)
    stage = await table.admit(spec("p1"))
    table.mark_loaded(stage, link_pb2.LoadDone())
    await table.refresh()
    clock.advance(29.9)
    await table.refresh()
    told_before = list(told)
    clock.advance(0.1)
    await table.refresh()
    await table.end_all()

    assert told_before == []
    assert [message.stage_event.kind for message in told] == [link_pb2.STAGE_EVENT_KIND_CRASHED]
    assert "did not answer for 30 s" in told[0].stage_event.message and table.statuses() == []


async def test_a_fault_watch_that_breaks_draws_its_wait_anew_each_time_and_ends_with_its_stage():
    host, draws = MuteHost(), []
    table = StageTable(host, LIMITS, ManualClock(), lambda: draws.append(0.0) or 0.0)
    stage = await table.admit(spec("p1"))
    table.mark_loaded(stage, link_pb2.LoadDone())
    watchers = list(stage.watchers)
    async with asyncio.timeout(5):
        while len(draws) < 2:
            await asyncio.sleep(0.01)
    await table.end_all()
    ended = await asyncio.wait_for(asyncio.gather(*watchers, return_exceptions=True), 5)

    assert host.processes[0].client.watches == 2
    assert all(isinstance(end, asyncio.CancelledError) for end in ended)
