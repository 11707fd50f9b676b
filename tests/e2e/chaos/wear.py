"""What a process takes, so that wear shows: memory, open files, threads. Judges by bounds alone."""

from collections.abc import Mapping
from dataclasses import dataclass

import psutil

from tests.e2e.chaos.fleet import Fleet, MadeFleet, stage_processes

MIB = 2**20


@dataclass(frozen=True)
class Taken:
    """By one process, in MiB and numbers."""

    rss_mib: float
    files: int
    threads: int


@dataclass(frozen=True)
class Growth:
    """What may come on top between two looks: pools fill, tables of the newest grow to their bounds."""

    rss_mib: float = 24.0
    files: int = 8
    threads: int = 6


def taken(pid: int) -> Taken:
    """By a process now."""
    process = psutil.Process(pid)
    with process.oneshot():
        return Taken(process.memory_info().rss / MIB, process.num_fds(), process.num_threads())


def taken_by(fleet: Fleet, names: list[str]) -> dict[str, Taken]:
    """By processes of a fleet, by name."""
    return {name: taken(fleet.pid(name)) for name in names}


def grown(before: Mapping[str, Taken], now: Mapping[str, Taken], bound: Growth) -> list[str]:
    """What grew past the bound, in words."""
    words = []
    for name, was in before.items():
        for what in ("rss_mib", "files", "threads"):
            more = getattr(now[name], what) - getattr(was, what)
            if more > getattr(bound, what):
                words.append(f"{name}: {what} {getattr(was, what):.0f} -> {getattr(now[name], what):.0f}")
    return words


def told(taken_now: Mapping[str, Taken]) -> str:
    """A line for people."""
    return "; ".join(
        f"{name} {one.rss_mib:.0f} MiB, {one.files} files, {one.threads} threads" for name, one in taken_now.items()
    )


def strays(fleet: MadeFleet) -> list[str]:
    """Stage processes of this fleet that are nobody's: neither a stage nor a spare of a fellow that runs."""
    fellows = [fleet.pid(name) for name in fleet.names() if name.startswith("fellow-")]
    owned = {stage.pid for pid in fellows for stage in stage_processes(pid)}
    found = []
    for process in psutil.process_iter(["pid", "cmdline", "status"]):
        words = " ".join(process.info["cmdline"] or ())
        is_ours = "swarm_stage serve" in words and str(fleet.folder) in words  # its socket lies there
        if is_ours and process.pid not in owned and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(f"{process.pid}: {words}")
    return found
