"""Several adapters of one base served at once over two real stages: each reply is what peft gives in one process."""

import json
import urllib.error
import urllib.request

import pytest

from tests.e2e.conftest import QUICK
from tests.e2e.spelled import assert_same_or_tied, chat, chat_together, make_spelled_model, post
from tests.e2e.swarm import swarm_up
from tests.lora import make_adapter, merged_reference, peft_reference
from tests.models import reference_run

BASE, PIRATE, POET = "tiny", "ann/pirate", "poet"
NEW_TOKENS = 16
PROMPTS = ((5, 17, 40, 9), (200, 31, 7, 88, 120, 63, 5, 290, 14))


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Model id -> where it lies, as it was published."""
    root = tmp_path_factory.mktemp("published")
    base = make_spelled_model(root / "tiny")
    pirate = make_adapter(base, root / "pirate", seed=1, rank=4)
    poet = make_adapter(base, root / "poet", seed=2, rank=8, targets=("q_proj", "v_proj", "down_proj"))
    return {BASE: base, PIRATE: pirate, POET: poet}


@pytest.fixture(scope="module")
def swarm(folders, tmp_path_factory):
    """A fleet of two with the base and both adapters in its catalog; nothing is loaded."""
    options = ("--fellows", 2, "--no-model", "--no-metrics")
    with swarm_up(tmp_path_factory.mktemp("adapters"), *options, env=QUICK) as running:
        for model_id, folder in folders.items():
            base = () if model_id == BASE else ("--base", BASE)
            imported = running.cli("model-import", folder, "--id", model_id, *base)
            assert imported.returncode == 0, imported.stderr
        yield running


@pytest.fixture(scope="module")
def expected(folders):
    """(Model id, prompt) -> tokens and logits of a run in one process."""
    runs = {}
    for model_id, folder in folders.items():
        model = peft_reference(folders[BASE], None if model_id == BASE else folder)
        runs |= {(model_id, prompt): reference_run(model, list(prompt), NEW_TOKENS) for prompt in PROMPTS}
    return runs


@pytest.fixture
def loaded(swarm):
    """The base with both adapters over two stages. It stays loaded for whoever needs it next."""
    if read(swarm, f"/api/v1/models/{BASE}/status")["state"] != "PLACEMENT_STATE_READY":
        load = swarm.cli("model-load", BASE, "--num-stages", 2, "--adapter", PIRATE, "--adapter", POET, "--wait")
        assert load.returncode == 0, load.stderr
    return swarm


@pytest.fixture
def unloaded(swarm):
    """Nothing is loaded."""
    for model_id in (BASE, PIRATE):
        post(f"{swarm.http}/api/v1/models/{model_id}/unload", {})
    return swarm


def read(swarm, path: str) -> dict:
    """GET some JSON."""
    with urllib.request.urlopen(swarm.http + path, timeout=30) as answer:
        return json.load(answer)


def test_base_and_adapters_answer_at_once_each_as_in_one_process(loaded, expected):
    asked = list(expected)

    replies = chat_together(loaded.http, asked, NEW_TOKENS)

    for one, tokens in zip(asked, replies, strict=True):
        assert_same_or_tied(tokens, *expected[one])
    assert len({tuple(tokens) for tokens in replies}) == len(asked)  # every adapter says something else


def test_adapters_are_listed_with_their_base_and_their_state(loaded):
    listed = {model["id"]: model for model in read(loaded, "/v1/models")["data"]}

    assert {name: model["swarm"]["state"] for name, model in listed.items()} == dict.fromkeys(
        (BASE, PIRATE, POET), "ready"
    )
    assert [listed[name].get("parent") for name in (BASE, PIRATE, POET)] == [None, BASE, BASE]
    assert len({model["max_model_len"] for model in listed.values()}) == 1
    status = loaded.cli("status").stdout
    assert f"adapters: {PIRATE}, {POET}" in status
    shown = loaded.cli("models", "show", POET).stdout
    assert BASE in shown and "rank 8" in shown


def test_an_adapter_that_nothing_holds_is_refused_with_the_command_that_loads_it(unloaded):
    with pytest.raises(urllib.error.HTTPError) as refused:
        post(f"{unloaded.http}/v1/chat/completions", {"model": POET, "messages": [{"role": "user", "content": "<5>"}]})

    document = json.load(refused.value)
    assert (refused.value.code, document["error"]["code"]) == (503, "model_not_ready")
    assert f"swarm model-load {BASE} --adapter {POET}" in document["error"]["message"]


def test_an_adapter_loaded_alone_is_merged_into_its_base(unloaded, folders):
    load = unloaded.cli("model-load", PIRATE, "--num-stages", 2, "--wait")
    assert load.returncode == 0, load.stderr

    model = merged_reference(folders[BASE], folders[PIRATE])
    for prompt in PROMPTS:
        expected = reference_run(model, list(prompt), NEW_TOKENS)
        assert_same_or_tied(chat(unloaded.http, PIRATE, prompt, NEW_TOKENS), *expected)
