"""One machine holds a stage of two models and is lost: both heal, and no reader of a reply of either hears of it."""

import json
import os
import shutil
import time
from pathlib import Path

import pytest

from tests.e2e.chaos.background import Background
from tests.e2e.chaos.faults import kill_machine
from tests.e2e.chaos.fleet import holders, incidents, is_ready, load, made_fleet
from tests.e2e.chaos.streams import PROMPTS, Stream
from tests.e2e.chaos.talk import begin, hear_each
from tests.e2e.conftest import MODEL
from tests.e2e.swarm import wait_for

TWIN = "SmolLM2-Twin"
TOKENS = 40
BACK_S = 60.0
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def two_models(models_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A models root that holds the same weights under two names."""
    root = tmp_path_factory.mktemp("two-models")
    for name in (MODEL, TWIN):
        shutil.copytree(models_root / MODEL, root / name, copy_function=_link)
        manifest = root / name / "servable.json"
        facts = json.loads(manifest.read_text())
        manifest.unlink()  # a second name of the file of the first root
        manifest.write_text(json.dumps(facts | {"model_id": name}))
    return root


def _link(source: str, target: str) -> None:
    """A second name where both lie on one disk: the weights are half a gigabyte."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy(source, target)


@pytest.mark.timeout(600)
def test_two_models_heal_that_lost_the_same_machine_at_once(two_models, tmp_path_factory):
    folder = tmp_path_factory.mktemp("twins")
    env = {"SWARM_MAX_LOADED_MODELS": "2", "SWARM_FELLOW_MEMORY_MB": "4000"}
    with Background() as background, made_fleet(folder, two_models, background, 4, **env) as fleet:
        load(fleet, 2, "p2p", model=MODEL, fellows=("fellow-1", "fellow-2"))
        load(fleet, 2, "p2p", model=TWIN, fellows=("fellow-3", "fellow-1"))
        alone = hear_each(fleet, background, [Stream(prompt) for prompt in PROMPTS[:2]], TOKENS)
        streams = [Stream(prompt, model) for model in (MODEL, TWIN) for prompt in PROMPTS[:2]]
        talk = begin(fleet, background, streams, TOKENS)
        struck_s, struck_unix_s = time.monotonic(), time.time()
        kill_machine(fleet, "fellow-1")
        talk.finish()
        for model in (MODEL, TWIN):
            wait_for(lambda model=model: is_ready(fleet, model), BACK_S, f"{model} again")
        seen = incidents(fleet, struck_unix_s - 0.1)
        print([(one["model_id"], one["outcome"], one["closed_s"] - struck_unix_s) for one in seen])
        print(f"pause {talk.pause_s(struck_s):.1f} s, {holders(fleet)}, {holders(fleet, TWIN)}")

        assert talk.errors() == []
        assert talk.wrong(alone) == []
        assert sorted((one["model_id"], one["outcome"]) for one in seen) == [(MODEL, "moved"), (TWIN, "moved")]
        assert "fellow-1" not in (*holders(fleet), *holders(fleet, TWIN))
