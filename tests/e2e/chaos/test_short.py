"""Faults, one after the other, on one `swarm up`: no client hears an error, every reply is what it would be."""

from collections.abc import Iterator

import pytest

from tests.e2e.chaos.background import Background
from tests.e2e.chaos.driver import Driver, hear_alone
from tests.e2e.chaos.fleet import up_fleet
from tests.e2e.chaos.record import Case
from tests.e2e.chaos.streams import PROMPTS

TOKENS = 32
BUSY = 4  # what a machine with other work on it may be slower than the bars of docs/measurements


@pytest.fixture(scope="module")
def driver(models_root, tmp_path_factory) -> Iterator[Driver]:
    """Three stages, a standby, four streams. No spare processes: each costs a stage, and saves little here."""
    prompts, folder = PROMPTS[:4], tmp_path_factory.mktemp("chaos")
    with Background() as background, up_fleet(folder, models_root, 4, 3, SWARM_STAGE_SPARE="off") as fleet:
        alone = hear_alone(fleet, background, prompts, TOKENS)
        yield Driver(fleet, background, prompts, TOKENS, stages=3, fellows=4, transport="p2p", alone=alone)


@pytest.mark.parametrize(
    ("fault", "stage", "detect_s", "next_token_s"),
    [
        ("kill stage", "middle", 2.0, 8.0),  # without a spare a stage starts anew, which is 5 s of a processor
        ("kill machine", "last", 2.0, 10.0),
        ("kill leader", "", None, 10.0),
        pytest.param("stop stage", "middle", 10.0, 14.0, marks=pytest.mark.slow),  # half a minute, most of it waiting
    ],
)
def test_streams_pause_and_go_on_as_if_nothing_had_happened(driver, fault, stage, detect_s, next_token_s):
    result = driver.run(Case(fault, stage, "decode"), look_after=False)
    print(result.row())  # shown when it fails

    assert result.errors == []
    assert (result.wrong, result.lost, result.repeated) == (0, 0, 0)
    assert result.orphans == []
    assert result.next_token_s is not None and result.next_token_s <= BUSY * next_token_s
    assert detect_s is None or (result.detect_s is not None and result.detect_s <= BUSY * detect_s)
