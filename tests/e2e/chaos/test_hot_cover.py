"""A stage that a fellow outside of the ring holds loaded a second time takes over within three seconds."""

import pytest

from tests.e2e.chaos.background import Background
from tests.e2e.chaos.faults import kill_machine
from tests.e2e.chaos.fleet import holders, incidents, is_ready, load, made_fleet, status
from tests.e2e.chaos.streams import PROMPTS, Stream
from tests.e2e.chaos.talk import begin, hear_each
from tests.e2e.swarm import wait_for

TOKENS, STAGES, TIMES = 48, 3, 3
COVERED_S = 90.0
SERVES_S = 3.0  # from when it is noticed
BACK_S = 60.0
pytestmark = pytest.mark.slow


@pytest.mark.timeout(600)
def test_a_stage_with_a_hot_cover_serves_again_within_three_seconds(models_root, tmp_path_factory):
    """Several times over: the machine comes back, something is covered again, and its machine is killed."""
    folder = tmp_path_factory.mktemp("covered")
    with Background() as background, made_fleet(folder, models_root, background, 4, SWARM_COVERS="hot") as fleet:
        load(fleet, STAGES, "p2p")
        alone = hear_each(fleet, background, [Stream(prompt) for prompt in PROMPTS[:4]], TOKENS)
        for _ in range(TIMES):
            cover = wait_for(lambda: hot_cover(status(fleet)), COVERED_S, "a hot cover", every_s=0.2)
            stage, lost = int(cover.get("stage_index", 0)), holders(fleet)[int(cover.get("stage_index", 0))]
            talk = begin(fleet, background, [Stream(prompt) for prompt in PROMPTS[:4]], TOKENS)
            struck = kill_machine(fleet, lost)
            talk.finish()
            wait_for(lambda: is_ready(fleet), BACK_S, "the model")
            (seen,) = wait_for(lambda at_s=struck.at_unix_s - 0.1: incidents(fleet, at_s), BACK_S, "an incident")
            detected_s = float(seen["opened_s"]) - struck.at_unix_s
            served_s = float(seen["closed_s"]) - float(seen["opened_s"])
            pause_s = talk.pause_s(struck.at_s)
            print(f"stage {stage}: noticed {detected_s:.2f} s, serves {served_s:.2f} s later, pause {pause_s:.2f} s")

            assert talk.errors() == []
            assert talk.wrong(alone) == []
            assert holders(fleet)[stage] == cover["fellow_name"]
            assert seen["outcome"] == "moved"
            assert served_s <= SERVES_S
            fleet.bring_back()


def hot_cover(placed: dict) -> dict | None:
    """Of any stage."""
    return next((cover for cover in placed.get("covers", []) if cover["kind"] == "hot"), None)
