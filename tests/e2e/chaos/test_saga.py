"""Moments of their own: streams that draw by a seed, and a leader that dies while it brings a ring back."""

import time
from collections.abc import Iterator

import psutil
import pytest

from tests.e2e.chaos.background import Background
from tests.e2e.chaos.driver import Driver, hear_alone
from tests.e2e.chaos.faults import kill_leader, kill_machine, kill_stage
from tests.e2e.chaos.fleet import holder, holders, incidents, is_ready, load, made_fleet
from tests.e2e.chaos.streams import PROMPTS, Stream
from tests.e2e.chaos.talk import begin, hear_each
from tests.e2e.swarm import wait_for

TOKENS, STAGES = 48, 3
BACK_S = 60.0
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def driver(models_root, tmp_path_factory) -> Iterator[Driver]:
    """Three stages on four fellows, direct links."""
    prompts = PROMPTS[:4]
    with Background() as background, made_fleet(tmp_path_factory.mktemp("saga"), models_root, background, 4) as fleet:
        load(fleet, STAGES, "p2p")
        alone = hear_alone(fleet, background, prompts, TOKENS)
        yield Driver(fleet, background, prompts, TOKENS, stages=STAGES, fellows=4, transport="p2p", alone=alone)


@pytest.fixture(scope="module")
def drawn(driver):
    """What sampled streams say undisturbed."""
    return hear_each(driver.fleet, driver.background, drawing(), TOKENS)


def drawing() -> list[Stream]:
    """Streams with seeds; two of them ask the same."""
    return [
        Stream(PROMPTS[0], seed=7),
        Stream(PROMPTS[0], seed=8),
        Stream(PROMPTS[1], seed=9),
        Stream(PROMPTS[2], seed=7),
    ]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("stage", range(STAGES))
def test_a_stream_that_draws_by_a_seed_says_the_same_though_a_stage_was_killed(driver, drawn, stage):
    assert drawn[PROMPTS[0], 7] != drawn[PROMPTS[0], 8], "it is drawn"
    fleet = driver.fleet
    driver.make_whole()
    talk = begin(fleet, driver.background, drawing(), TOKENS)
    struck = kill_stage(fleet, holder(fleet, stage))
    talk.finish()
    print(f"stage {stage}: pause {talk.pause_s(struck.at_s):.1f} s")

    assert talk.errors() == []
    assert talk.wrong(drawn) == []


@pytest.mark.timeout(600)
@pytest.mark.parametrize("later_s", [0.2, 0.5, 1.0, 2.0])
def test_a_leader_that_is_killed_while_it_brings_a_ring_back_finishes_it(driver, later_s):
    fleet = driver.fleet
    driver.make_whole()
    alone = {(prompt, None): text for prompt, text in driver.alone.items()}
    talk = begin(fleet, driver.background, [Stream(prompt) for prompt in driver.prompts], TOKENS)
    lost = holder(fleet, 1)
    struck = kill_machine(fleet, lost)
    time.sleep(later_s)
    was_open = [one for one in incidents(fleet, struck.at_unix_s - 0.1) if not one.get("closed_s")]
    kill_leader(fleet, "")
    fleet.processes["leader"].popen.wait()
    time.sleep(0.25)
    fleet.start("leader")
    wait_for(lambda: is_ready(fleet), BACK_S, "the model")
    talk.finish()
    seen = wait_for(lambda: incidents(fleet, struck.at_unix_s - 0.1), BACK_S, "incidents")
    wait_for(lambda: all(one.get("closed_s") for one in incidents(fleet)), BACK_S, "an end of every incident")
    after_s = [round(float(one.get("closed_s", 0)) - struck.at_unix_s, 1) for one in seen]
    print(
        f"{later_s:g} s: pause {talk.pause_s(struck.at_s):.1f} s, closed after {after_s} s",
        was_open and was_open[0]["step"],
    )

    assert talk.errors() == []
    assert talk.wrong(alone) == []
    assert lost not in holders(fleet)
    assert len(was_open) == len(seen) == 1, "one incident, of which the next leader knows"
    assert not any(psutil.pid_exists(process.pid) and process.status() != "zombie" for process in struck.died)
