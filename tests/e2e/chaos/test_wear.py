"""What twenty faults leave behind: nothing. And a machine that comes and goes is one machine.

./run-tests -m slow tests/e2e/chaos/test_wear.py -s
"""

import os
import signal
import time
from collections.abc import Iterator

import pytest

from tests.e2e.chaos.background import Background
from tests.e2e.chaos.driver import Driver, hear_alone
from tests.e2e.chaos.fleet import MadeFleet, connected, get, holders, incidents, load, made_fleet
from tests.e2e.chaos.record import Case
from tests.e2e.chaos.streams import PROMPTS
from tests.e2e.chaos.wear import Growth, grown, strays, taken_by, told
from tests.e2e.swarm import run_cli, wait_for

HEALS, WARM = 20, 5
TOKENS, STREAMS = 40, 4
PLACES = ("0", "middle", "last")
STEADY = ["leader", "gateway", "fellow-1", "fellow-2"]  # processes that are never killed here
BACK_AND_FORTH = 20
EVENTS_A_HEAL = 12  # opened, closed, crashed, lost, back, ... of every machine of the ring
LOST_S = 30.0
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def driver(models_root, tmp_path_factory) -> Iterator[Driver]:
    """Three stages on four fellows, direct links."""
    prompts = PROMPTS[:STREAMS]
    with Background() as background, made_fleet(tmp_path_factory.mktemp("wear"), models_root, background, 4) as fleet:
        load(fleet, 3, "p2p")
        alone = hear_alone(fleet, background, prompts, TOKENS)
        yield Driver(fleet, background, prompts, TOKENS, stages=3, fellows=4, transport="p2p", alone=alone)


def next_case(fleet: MadeFleet, number: int) -> Case:
    """In turn: a process of a steady fellow, and a machine of the two others."""
    is_machine = number % 2 == 1
    held = [name in STEADY for name in holders(fleet)]
    able = [index for index, is_steady in enumerate(held) if is_steady != is_machine]
    return Case("kill machine" if is_machine else "kill stage", PLACES[able[number // 2 % len(able)]], "decode")


@pytest.mark.timeout(1800)
def test_twenty_heals_wear_nothing_out(driver: Driver):
    """0 errors, every text right; memory, files and threads as after the fifth; nothing is left behind."""
    fleet, began_s, results = driver.fleet, time.time(), []
    for number in range(HEALS):
        driver.make_whole()
        wait_for(lambda: any(name in STEADY for name in holders(fleet)), what="a stage")
        is_measured = number in (WARM - 1, HEALS - 1)
        result = driver.run(next_case(fleet, number), look_after=is_measured)
        print(f"{number + 1}: {result.row()}")
        results.append(result)
        if number == WARM - 1:
            before = taken_by(fleet, STEADY)
            print(f"after {WARM}: {told(before)}")
    now = taken_by(fleet, STEADY)
    print(f"after {HEALS}: {told(now)}")
    seen = incidents(fleet, began_s - 1)
    events = get(fleet, "/api/v1/pools/main/events?limit=1000").get("events", [])
    print(f"{len(seen)} incidents, {len(events)} events, ledger {ledger_bytes(fleet) / 2**10:.0f} KiB")

    assert [error for result in results for error in result.errors] == []
    assert [(result.wrong, result.lost, result.repeated) for result in results] == [(0, 0, 0)] * HEALS
    assert [orphan for result in results for orphan in result.orphans] == []
    assert results[-1].left == []
    assert grown(before, now, Growth()) == []
    assert strays(fleet) == []
    assert len(seen) == HEALS and all(one.get("closed_s") for one in seen)
    assert all(len(one["log"]) <= 50 for one in seen)
    assert 2 * HEALS <= len(events) < EVENTS_A_HEAL * HEALS


def ledger_bytes(fleet: MadeFleet) -> int:
    """What the leader keeps on disk."""
    return sum(path.stat().st_size for path in (fleet.folder / "leader").rglob("*.db*"))


@pytest.mark.timeout(1800)
def test_a_machine_that_comes_and_goes_twenty_times_is_one_machine(driver: Driver):
    """Asked to end and killed in turn: one row, the same id, and it is there again each time."""
    fleet, name = driver.fleet, "fellow-4"
    driver.make_whole()
    first = row_of(fleet, name)
    for number in range(BACK_AND_FORTH):
        ending = signal.SIGTERM if number % 2 == 0 else signal.SIGKILL
        process = fleet.processes[name]
        os.kill(process.pid, ending)
        process.popen.wait(30)
        fleet.bring_back()
        wait_for(lambda: name in connected(fleet), LOST_S, f"{name} after {ending.name}", every_s=0.1)
        assert row_of(fleet, name)["fellow_id"] == first["fellow_id"]
    listed = run_cli("fellows", leader=fleet.grpc)

    assert len(get(fleet, "/api/v1/workers")["fellows"]) == 4
    assert listed.stdout.count(name) == 1, listed.stdout
    assert strays(fleet) == []
    driver.make_whole()


def row_of(fleet: MadeFleet, name: str) -> dict:
    """The one row of a fellow."""
    (row,) = [one for one in get(fleet, "/api/v1/workers")["fellows"] if one["name"] == name]
    return row
