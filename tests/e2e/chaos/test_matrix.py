"""Every fault, at every place of the ring, at every moment that makes sense. One command:

./run-tests -m slow tests/e2e/chaos
CHAOS_TABLE=docs/measurements/2026-11-chaos.md ./run-tests -m slow tests/e2e/chaos     writes the table too
./run-tests -m slow tests/e2e/chaos -k "kill_stage and decode"                          some cells
"""

import os
import platform
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.chaos.background import Background
from tests.e2e.chaos.driver import IDLE_CPU_PERCENT, Driver, hear_alone
from tests.e2e.chaos.fleet import load, made_fleet
from tests.e2e.chaos.record import Case, Result, write_table
from tests.e2e.chaos.streams import LONG, PROMPTS

STAGES, FELLOWS, TOKENS = 3, 4, 48
PLACES = ("0", "middle", "last")
BUSY = 3  # what a machine with other work on it may be slower
LONG_PROMPTS = tuple(f"{LONG}\n{prompt}" for prompt in PROMPTS[:4]) * 2
DETECT_S = {"kill stage": 2.0, "kill machine": 2.0, "cut link": 2.0, "half-open link": 10.0, "stop stage": 10.0}
pytestmark = pytest.mark.slow


def cases() -> Iterator[Case]:
    """What can befall whom, when. Lines to the relay are those of a ring that goes by it."""
    for fault in ("kill stage", "kill machine", "stop stage", "stop machine"):
        for stage in PLACES:
            for moment in ("prefill", "decode", "load", "idle"):
                if (fault, moment) != ("stop machine", "load"):  # a load waits for a fellow that may wake up
                    yield Case(fault, stage, moment)
    for fault in ("cut link", "half-open link", "cut control link", "half-open control link"):
        for stage in PLACES:
            for moment in ("prefill", "decode", "idle"):
                yield Case(fault, stage, moment)
    for fault in ("kill leader", "kill relay", "full disk"):
        for moment in ("prefill", "decode", "idle"):
            yield Case(fault, "", moment)


def ground_of(case: Case) -> str:
    """Which fleet a case happens on: direct links, all of them by the leader's relay, or by one of its own.

    A leader names a relay of its own to everybody, so only its own inner one is reached by a line of each fellow's.
    """
    if case.fault == "kill relay":
        return "own-relay"
    return "tunnel" if case.fault in ("cut link", "half-open link") else "direct"


# What does not hold yet, with the reason. Strict: a cell that is mended has to leave this table.
KNOWN: dict[Case, str] = {}


def marked(case: Case) -> object:
    """The case as a parameter."""
    reason = KNOWN.get(case)
    marks = [pytest.mark.xfail(strict=True, reason=reason)] if reason else []
    return pytest.param(case, marks=marks, id=f"{ground_of(case)}-{case}")


@pytest.fixture(scope="module")
def results() -> Iterator[list[Result]]:
    """Everything seen, written as a table at the end when CHAOS_TABLE names a file."""
    seen: list[Result] = []
    yield seen
    if (path := os.environ.get("CHAOS_TABLE")) and seen:
        load_average = ", ".join(f"{load:.1f}" for load in os.getloadavg())
        conditions = (
            f"{len(seen)} cells, {time.strftime('%Y-%m-%d')}: {FELLOWS} fellows, {STAGES} stages, 8 greedy streams of "
            f"{TOKENS} tokens, SmolLM2-135M-Instruct in float32, one thread a stage; {platform.machine()}, "
            f"{os.cpu_count()} processors, load average at the end {load_average}."
        )
        write_table(Path(path), seen, conditions)


@pytest.fixture(scope="module")
def alone() -> dict[str, dict[str, str]]:
    """Undisturbed replies by kind of prompt, heard once: every fleet serves the same weights."""
    return {}


@pytest.fixture(scope="module")
def grounds(models_root, tmp_path_factory, alone) -> Iterator["Grounds"]:
    """Fleets, made when they are first needed."""
    made = Grounds(models_root, tmp_path_factory, alone)
    try:
        yield made
    finally:
        made.close()


class Grounds:
    """One fleet at a time: the machine is small. A fleet that a case broke is not used again."""

    def __init__(self, models_root: Path, folders: pytest.TempPathFactory, alone: dict) -> None:
        self._models_root, self._folders, self._alone = models_root, folders, alone
        self._stack: ExitStack | None = None
        self._ground = ""
        self._drivers: dict[str, Driver] = {}

    def driver(self, ground: str, moment: str) -> Driver:
        """For a case; long prompts in prefill."""
        if self._ground != ground:
            self.close()
            self._drivers = self._make(ground)
            self._ground = ground
        driver = self._drivers["long" if moment == "prefill" else "short"]
        if not driver.alone:
            driver.alone |= hear_alone(driver.fleet, driver.background, driver.prompts, TOKENS)
        return driver

    def _make(self, ground: str) -> dict[str, Driver]:
        self._stack = stack = ExitStack()
        background = stack.enter_context(Background())
        folder = self._folders.mktemp(ground)
        own_relay = ground == "own-relay"
        fleet = stack.enter_context(made_fleet(folder, self._models_root, background, FELLOWS, own_relay))
        transport = "p2p" if ground == "direct" else "tunnel"
        load(fleet, STAGES, transport)
        shared = {"stages": STAGES, "fellows": FELLOWS, "transport": transport}
        return {
            kind: Driver(fleet, background, prompts, TOKENS, alone=self._alone.setdefault(kind, {}), **shared)
            for kind, prompts in (("short", PROMPTS), ("long", LONG_PROMPTS))
        }

    def close(self) -> None:
        """End the fleet."""
        self._ground = ""
        if self._stack is not None:
            self._stack.close()
        self._stack = None


@pytest.mark.timeout(900)
@pytest.mark.parametrize("case", [marked(case) for case in sorted(cases(), key=ground_of)])
def test_nobody_hears_of_it(case: Case, grounds: Grounds, results: list[Result]):
    """A standby is there: a pause, then the same text; nothing is left behind."""
    driver = grounds.driver(ground_of(case), case.moment)
    is_through = False
    try:
        result = driver.run(case)
        results.append(result)
        print(result.row())  # shown when it fails, and with -s
        is_through = not result.errors
    finally:
        if not is_through:
            grounds.close()

    assert result.errors == []
    assert (result.wrong, result.lost, result.repeated) == (0, 0, 0)
    assert result.orphans == []
    assert result.left == []
    assert result.idle_cpu_percent is not None and result.idle_cpu_percent < IDLE_CPU_PERCENT
    if case.moment in ("prefill", "decode") and case.fault in DETECT_S:
        assert result.detect_s is not None and result.detect_s <= BUSY * DETECT_S[case.fault]
