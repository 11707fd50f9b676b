"""`swarm up --quantization` over two real stages: replies of bitsandbytes in one process, bytes as planned."""

import json
import urllib.request

import pytest
import torch
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

from tests.e2e.conftest import QUICK
from tests.e2e.spelled import assert_same_or_tied, chat, make_spelled_model, post
from tests.e2e.swarm import swarm_up, wait_for
from tests.models import reference_run

MODEL = "tiny"
NEW_TOKENS = 16
PROMPTS = ((5, 17, 40, 9), (200, 31, 7, 88, 120, 63, 5, 290, 14))
CONFIGS = {
    "nf4": BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.float32),
    "int8": BitsAndBytesConfig(load_in_8bit=True),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model wide enough that its linear layers are most of it."""
    root = tmp_path_factory.mktemp("published")
    return make_spelled_model(root / MODEL, hidden_size=256, intermediate_size=512, head_dim=64)


@pytest.fixture(scope="module")
def swarm(folder, tmp_path_factory):
    """Two fellows; the model is held in nf4 over two stages."""
    options = ("--fellows", 2, "--stages", 2, "--model", folder, "--quantization", "nf4", "--no-metrics")
    with swarm_up(tmp_path_factory.mktemp("quantised"), *options, env=QUICK) as running:
        yield running


def route(swarm, act: str) -> str:
    """A JSON route of the model."""
    return f"{swarm.http}/api/v1/models/{MODEL}/{act}"


def read_status(swarm) -> dict:
    with urllib.request.urlopen(route(swarm, "status"), timeout=30) as answer:
        return json.load(answer)


def lone_run(folder, method: str, prompt) -> tuple[list[int], list[torch.Tensor]]:
    """What a quantised from_pretrained says in one process."""
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, quantization_config=CONFIGS[method], device_map="cpu", local_files_only=True
    )
    return reference_run(model.eval(), list(prompt), NEW_TOKENS)


def assert_held(status: dict, method: str) -> None:
    """As asked for, and within 5 % of what was planned."""
    assert status["quantization"] == method
    assert [stage["quantization"] for stage in status["stages"]] == [method, method]
    for stage in status["stages"]:
        planned, measured = int(stage["weight_bytes"]), int(stage["weight_bytes_measured"])
        assert measured == pytest.approx(planned, rel=0.05)


def test_up_takes_the_quantization_and_replies_are_those_of_one_quantised_process(swarm, folder):
    assert_held(read_status(swarm), "nf4")
    assert "nf4" in swarm.cli("status").stdout

    for prompt in PROMPTS:
        assert_same_or_tied(chat(swarm.http, MODEL, prompt, NEW_TOKENS), *lone_run(folder, "nf4", prompt))


def test_a_load_in_json_says_int8_by_its_bits_and_gets_it(swarm, folder):
    post(route(swarm, "unload"), {})
    post(route(swarm, "load"), {"num_stages": 2, "quantization": {"bits": 8}})
    wait_for(lambda: read_status(swarm)["state"] == "PLACEMENT_STATE_READY", 60.0, "the model in int8")

    assert_held(read_status(swarm), "int8")
    for prompt in PROMPTS:
        assert_same_or_tied(chat(swarm.http, MODEL, prompt, NEW_TOKENS), *lone_run(folder, "int8", prompt))


def test_a_plan_prices_every_method_before_anything_loads(swarm):
    planned = {
        method: post(route(swarm, "plan"), {"num_stages": 1, "quantization": {"method": method}})
        for method in ("none", "int8", "nf4")
    }
    priced = {method: int(plan["stages"][0]["weight_bytes"]) for method, plan in planned.items()}

    assert {method: plan["quantization"] for method, plan in planned.items()} == {method: method for method in planned}
    assert priced["nf4"] < priced["int8"] < priced["none"]
