"""What befalls a swarm: each fault by name, and how it is taken back. Decides nothing of when."""

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import psutil

from tests.e2e.chaos.fleet import Fleet, MadeFleet, stage_processes
from tests.e2e.swarm import START_S, wait_for

LEASE_S = 9.0  # as a leader gives it when nothing else is set
DISK_ROOM_BYTES = 0  # what a file may still grow by on a disk that is full


@dataclass
class Struck:
    """A fault that happened. at_s: monotonic; at_unix_s: wall time. died: processes that are to be gone by it.

    lasts_s: it is taken back so long after; 0: at the end of its case. undo: takes it back.
    """

    at_s: float
    at_unix_s: float
    lasts_s: float = 0.0
    died: list[psutil.Process] = field(default_factory=list)
    undo: Callable[[], None] = lambda: None


def _now(**more: object) -> Struck:
    return Struck(time.monotonic(), time.time(), **more)  # type: ignore[arg-type]


def _stage(fleet: Fleet, fellow: str) -> psutil.Process:
    """The process of its stage, which a load starts once it has fetched."""
    pid = fleet.pid(fellow)
    return wait_for(lambda: stage_processes(pid), START_S, f"a stage's process on {fellow}", every_s=0.02)[0]


def kill_stage(fleet: Fleet, fellow: str) -> Struck:
    """SIGKILL to the process that holds the stage; its fellow lives."""
    stage = _stage(fleet, fellow)
    stage.kill()
    return _now(died=[stage])


def kill_machine(fleet: Fleet, fellow: str) -> Struck:
    """SIGKILL to a fellow; its stages end with it."""
    pid = fleet.pid(fellow)
    died = [psutil.Process(pid), *stage_processes(pid)]
    os.kill(pid, signal.SIGKILL)
    return _now(died=died)


def stop_stage(fleet: Fleet, fellow: str) -> Struck:
    """SIGSTOP to the process that holds the stage: every connection stays open and nothing moves."""
    stage = _stage(fleet, fellow)
    stage.suspend()
    return _now(died=[stage])


def stop_machine(fleet: Fleet, fellow: str) -> Struck:
    """SIGSTOP to all of a machine, as a lid that is closed; it wakes up when its lease is long over."""
    pid = fleet.pid(fellow)
    machine = [psutil.Process(pid), *stage_processes(pid)]
    for process in machine:
        process.suspend()

    def wake() -> None:
        for process in machine:
            if process.is_running():
                process.send_signal(signal.SIGCONT)

    return _now(lasts_s=LEASE_S + 4, undo=wake)


def cut_link(fleet: Fleet, fellow: str) -> Struck:
    """The fellow's line to the relay breaks for 2 s: both links of its stage."""
    line = _made(fleet).rings[fellow]
    _made(fleet).cut(line)
    return _now(lasts_s=2.0, undo=lambda: _made(fleet).mend(line))


def half_open_link(fleet: Fleet, fellow: str) -> Struck:
    """Nothing passes on the fellow's line to the relay, and nobody is told, for 15 s."""
    line = _made(fleet).rings[fellow]
    _made(fleet).stall(line)
    return _now(lasts_s=15.0, undo=lambda: _made(fleet).mend(line))


def cut_control(fleet: Fleet, fellow: str) -> Struck:
    """The fellow's line to the leader breaks for 2 s."""
    line = _made(fleet).fellows[fellow]
    _made(fleet).cut(line)
    return _now(lasts_s=2.0, undo=lambda: _made(fleet).mend(line))


def half_open_control(fleet: Fleet, fellow: str) -> Struck:
    """Nothing passes on the fellow's line to the leader, and nobody is told, for longer than its lease."""
    line = _made(fleet).fellows[fellow]
    _made(fleet).stall(line)
    return _now(lasts_s=LEASE_S + 4, undo=lambda: _made(fleet).mend(line))


def kill_leader(fleet: Fleet, _: str) -> Struck:
    """SIGKILL to the leader; it is started again after a moment."""
    return _kill_and_start_again(fleet, "leader")


def kill_relay(fleet: Fleet, _: str) -> Struck:
    """SIGKILL to the relay; it is started again after a moment."""
    return _kill_and_start_again(fleet, "relay")


def fill_disk(fleet: Fleet, _: str) -> Struck:
    """No file of the leader's may grow any more, for 5 s; what it would write is refused as on a full disk."""
    leader = psutil.Process(fleet.pid("leader"))
    before = leader.rlimit(psutil.RLIMIT_FSIZE)
    leader.rlimit(psutil.RLIMIT_FSIZE, (DISK_ROOM_BYTES, before[1]))
    return _now(lasts_s=5.0, undo=lambda: leader.rlimit(psutil.RLIMIT_FSIZE, before))


FAULTS: dict[str, Callable[[Fleet, str], Struck]] = {
    "kill stage": kill_stage,
    "kill machine": kill_machine,
    "stop stage": stop_stage,
    "stop machine": stop_machine,
    "cut link": cut_link,
    "half-open link": half_open_link,
    "cut control link": cut_control,
    "half-open control link": half_open_control,
    "kill leader": kill_leader,
    "kill relay": kill_relay,
    "full disk": fill_disk,
}
NOT_IN_THE_RING = ("kill leader", "kill relay", "full disk")


def _kill_and_start_again(fleet: Fleet, name: str) -> Struck:
    died = psutil.Process(fleet.pid(name))
    died.kill()
    return _now(died=[died], lasts_s=0.25, undo=fleet.bring_back)


def _made(fleet: Fleet) -> MadeFleet:
    assert isinstance(fleet, MadeFleet), "only a fleet with lines has one to cut"
    return fleet
