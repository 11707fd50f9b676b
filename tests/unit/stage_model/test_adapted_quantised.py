"""Adapters over quantised weights: as trained, a base in few bits with adapters beside it, whatever the path."""

from pathlib import Path

import pytest
import torch
from peft import PeftModel
from swarm_core.quantization import INT8, NF4

from tests.lora import adapter_source, make_adapter
from tests.models import make_tiny_model
from tests.unit.stage_model.adapted import LORAS, batched_replies, build, reply
from tests.unit.stage_model.quantised import load_quantised_reference, reference_by_token
from tests.unit.stage_model.slices import assert_same_reply

PROMPT, NEW = [5, 17, 99, 250, 8, 31], 8
NAMES = ("red", "blue")


@pytest.fixture(scope="module", params=["llama", "gemma2"])
def base(request, tmp_path_factory) -> Path:
    return make_tiny_model(request.param, tmp_path_factory.mktemp(request.param), layers=2)


@pytest.fixture(scope="module")
def adapters(base, tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("adapters")
    return {name: make_adapter(base, folder / name, seed=seed) for seed, name in enumerate(NAMES)}


@pytest.mark.parametrize("method", [NF4, INT8])
def test_over_quantised_weights_each_session_says_what_peft_says(base, adapters, method):
    """int8 goes by single positions: rows of one product change each other's outliers, also in the reference."""
    wanted = {}
    for name in NAMES:
        model = PeftModel.from_pretrained(load_quantised_reference(base, method), adapters[name]).eval()
        wanted[name] = reference_by_token(model, PROMPT, NEW)
    for lora in LORAS:
        slices = build(base, [adapter_source(adapters[name]) for name in NAMES], 2, lora, quantization=method)
        for name in ("blue", "red"):
            got, logits = reply(slices, PROMPT, NEW, name, piece=1)
            assert_same_reply(got, *wanted[name])
            assert torch.allclose(logits[0], wanted[name][1][0], atol=2e-3), (lora, name)

    assert wanted["red"][0] != wanted["blue"][0]


@pytest.mark.parametrize("method", [NF4, INT8])
@pytest.mark.parametrize("lora", LORAS)
def test_an_adapter_that_is_always_in_effect_needs_no_choice(base, adapters, method, lora):
    source = adapter_source(adapters["red"])
    chosen = reply(build(base, [source], 1, lora, quantization=method), PROMPT, NEW, "red")
    always = reply(build(base, [adapter_source(adapters["red"], "always")], 1, lora, quantization=method), PROMPT, NEW)

    assert always[0] == chosen[0]
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(always[1], chosen[1], strict=True))


@pytest.mark.parametrize("lora", LORAS)
def test_sessions_of_several_adapters_over_nf4_step_together_and_say_what_they_say_alone(base, adapters, lora):
    slices = build(base, [adapter_source(adapters[name]) for name in NAMES], 2, lora, quantization=NF4)
    mixed = ["blue", "", "red", "blue", "", "red"]
    for name, ids in zip(mixed, batched_replies(slices, PROMPT, NEW, mixed), strict=True):
        assert_same_reply(ids, *reply(slices, PROMPT, NEW, name))


def test_merged_before_it_is_quantised_a_weight_is_quantised_as_the_sum(base, adapters, tmp_path):
    """int4 kernels take no adapters: what they are given is the trained weight."""
    from transformers import AutoModelForCausalLM

    merged = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), adapters["red"]).merge_and_unload()
    merged.save_pretrained(tmp_path / "merged")
    want = reply(build(tmp_path / "merged", [], 1, quantization=NF4), PROMPT, NEW)
    got = reply(build(base, [adapter_source(adapters["red"], "merged")], 1, quantization=NF4), PROMPT, NEW)

    assert got[0] == want[0]
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(got[1], want[1], strict=True))
