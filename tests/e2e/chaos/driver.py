"""One fault on a running swarm: streams begin, it strikes at its moment, and what becomes of them is recorded."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import psutil

from tests.e2e.chaos.background import Background
from tests.e2e.chaos.faults import FAULTS, NOT_IN_THE_RING, Struck
from tests.e2e.chaos.fleet import (
    Fleet,
    connected,
    get,
    holder,
    is_ready,
    load,
    stage_processes,
    status,
    unload,
)
from tests.e2e.chaos.record import Case, Result
from tests.e2e.chaos.streams import STREAM_S, Stream, talk_all, talk_alone
from tests.e2e.swarm import wait_for

BEGUN_TOKENS = 6  # of every stream, before a fault strikes in decode
MOMENT_S = 60.0
REST_S = 45.0  # sessions are kept for 30 s at most
ORPHAN_S = 10.0
IDLE_S = 2.0
SPARES_S = 20.0  # what took up a spare process starts the next one when all is quiet
IDLE_CPU_PERCENT = 5.0
BACK_S = 60.0
HELD = ("sessions", "kv_tokens_used", "kv_tokens_reserved", "waiting", "sessions_kept", "tape_bytes")


@dataclass
class Driver:
    """A fleet with a model over `stages`, and what each prompt says when nothing befalls it (`alone`)."""

    fleet: Fleet
    background: Background
    prompts: Sequence[str]
    tokens: int
    stages: int
    fellows: int
    transport: str
    alone: dict[str, str]

    def run(self, case: Case, look_after: bool = True) -> Result:
        """Let one case happen, and leave the swarm as it was. look_after: at rest and idle processor time too."""
        result = Result(case)
        self.make_whole()
        fellow = "" if case.fault in NOT_IN_THE_RING else holder(self.fleet, self._stage_index(case.stage))
        streams = [Stream(prompt) for prompt in self.prompts]
        if case.moment == "load":
            unload(self.fleet)
            load(self.fleet, self.stages, self.transport, wait=False)
            wait_for(lambda: self._loads_at(fellow), MOMENT_S, "a load", every_s=0.02)
        elif case.moment != "idle":
            talking = self.background.start(talk_all(self.fleet.http, streams, self.tokens))
            self._await_moment(case, streams)
        struck = FAULTS[case.fault](self.fleet, fellow)
        if case.moment == "load":
            self._over(struck, lambda: is_ready(self.fleet))
        if case.moment in ("load", "idle"):
            talking = self.background.start(talk_all(self.fleet.http, streams, self.tokens))
        self._over(struck, talking.done)
        talking.result()
        result.judge(streams, self.alone, self.tokens, struck.at_s)
        result.orphans = self._orphans(struck)
        self._read_incident(result, struck)
        self.fleet.bring_back()
        if result.serves_again_s is None:
            result.serves_again_s = self._serves_again_s(struck)
        if look_after:
            self._look_after(result)
        return result

    def make_whole(self) -> None:
        """Every fellow is there and the model serves over its stages; what an earlier fault left is loaded again."""
        self.fleet.bring_back()
        wait_for(lambda: len(connected(self.fleet)) == self.fellows, MOMENT_S, "every fellow", every_s=0.2)
        if not is_ready(self.fleet) or len(status(self.fleet)["stages"]) != self.stages:
            unload(self.fleet)
            load(self.fleet, self.stages, self.transport)

    def _stage_index(self, stage: str) -> int:
        return {"0": 0, "middle": self.stages // 2, "last": self.stages - 1}[stage]

    def _loads_at(self, fellow: str) -> bool:
        """Whether the load is under way: at this fellow, or anywhere for none."""
        placed = status(self.fleet)
        loading = [stage["fellow_name"] for stage in placed.get("stages", []) if stage.get("step")]
        return bool(fellow in loading if fellow else loading) or placed.get("state") == "PLACEMENT_STATE_READY"

    def _await_moment(self, case: Case, streams: Sequence[Stream]) -> None:
        """Until the streams are where the fault is to find them."""
        if case.moment == "prefill":
            wait_for(lambda: int(status(self.fleet).get("running", 0)) > 0, MOMENT_S, "a prompt", every_s=0.02)
            return
        wait_for(
            lambda: all(len(stream.arrivals_s) >= BEGUN_TOKENS or stream.is_over for stream in streams),
            MOMENT_S,
            "running streams",
            every_s=0.02,
        )
        broken = [stream.error for stream in streams if stream.error]
        assert not broken, f"before any fault: {broken}"

    def _over(self, struck: Struck, is_over) -> None:
        """Wait until it is over; the fault is taken back when its time has come, or then."""
        deadline_s = time.monotonic() + STREAM_S
        while not is_over() or struck.lasts_s:
            if struck.lasts_s and time.monotonic() >= struck.at_s + struck.lasts_s:
                struck.lasts_s = 0.0
                struck.undo()
            assert time.monotonic() < deadline_s, "it does not end"
            time.sleep(0.05)

    def _serves_again_s(self, struck: Struck) -> float | None:
        """Seconds from the fault until the model serves; None when it does not come back by itself."""
        while not is_ready(self.fleet):
            if time.monotonic() > struck.at_s + BACK_S:
                return None
            time.sleep(0.1)
        return time.monotonic() - struck.at_s

    def _orphans(self, struck: Struck) -> list[str]:
        """Processes that live though they should be gone by it."""
        while time.monotonic() < struck.at_s + ORPHAN_S and any(map(lives, struck.died)):
            time.sleep(0.1)
        return [f"process {process.pid}" for process in struck.died if lives(process)]

    def _read_incident(self, result: Result, struck: Struck) -> None:
        """The first that was opened since the fault, as the leader tells of it."""
        incidents = get(self.fleet, "/api/v1/incidents").get("incidents", [])
        since = [one for one in incidents if float(one.get("opened_s", 0)) >= struck.at_unix_s - 0.1]
        if not since:
            return
        first = min(since, key=lambda one: float(one["opened_s"]))
        result.detect_s = max(0.0, float(first["opened_s"]) - struck.at_unix_s)
        result.outcome = str(first.get("outcome", ""))
        if first.get("closed_s"):
            result.serves_again_s = float(first["closed_s"]) - struck.at_unix_s

    def _look_after(self, result: Result) -> None:
        """What is left behind, and what the swarm does when nothing is asked of it."""
        deadline_s = time.monotonic() + REST_S
        while (left := self._left()) and time.monotonic() < deadline_s:
            time.sleep(0.5)
        result.left = left
        deadline_s = time.monotonic() + SPARES_S
        while (busy_percent := self._idle_cpu_percent()) >= IDLE_CPU_PERCENT and time.monotonic() < deadline_s:
            continue
        result.idle_cpu_percent = busy_percent

    def _left(self) -> list[str]:
        """Budgets that are not back at zero."""
        placed = status(self.fleet)
        left = [f"{name} {placed[name]}" for name in ("running", "waiting") if int(placed.get(name, 0))]
        for stage in placed.get("stages", []):
            live = stage.get("live")
            if not live:
                left.append(f"stage {stage.get('stage_index', 0)} not heard of")
                continue
            left += [f"{name} {live[name]}" for name in HELD if int(live.get(name, 0))]
        return left if placed else ["no status"]

    def _idle_cpu_percent(self) -> float:
        """Of one processor, by the busiest process."""
        pids = [self.fleet.pid(name) for name in self.fleet.names()]
        running = [psutil.Process(pid) for pid in pids]
        running += [stage for pid in pids for stage in stage_processes(pid)]
        before = [sum(process.cpu_times()[:2]) for process in running]
        time.sleep(IDLE_S)
        after = [sum(process.cpu_times()[:2]) for process in running]
        return max(100 * (late - early) / IDLE_S for early, late in zip(before, after, strict=True))


def lives(process: psutil.Process) -> bool:
    """Whether it runs; waiting to be reaped is not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def hear_alone(fleet: Fleet, background: Background, prompts: Sequence[str], tokens: int) -> dict[str, str]:
    """What each prompt says alone and undisturbed."""
    return background.do(talk_alone(fleet.http, prompts, tokens), within_s=STREAM_S)
