"""Slices with adapters: a session's reply is what peft says with its adapter, however it is cut, held or batched."""

from functools import cache
from pathlib import Path

import pytest
import torch
from swarm_core.errors import BadRequest
from swarm_stage.model.lean.slice import LeanSlice
from swarm_stage.model.products.product import DenseProduct

from tests.lora import adapter_source, make_adapter, merged_reference, peft_reference
from tests.models import make_tiny_model, reference_run
from tests.unit.stage_model.adapted import LORAS, batched_replies, build, reply
from tests.unit.stage_model.slices import assert_same_reply

PROMPT, NEW = [5, 17, 99, 250, 8, 31], 8
FAMILIES = ("llama", "qwen3", "gemma2", "phi3")  # two that run lean, two that transformers' own forward runs


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> dict[str, Path]:
    return {family: make_tiny_model(family, tmp_path_factory.mktemp(family), layers=3) for family in FAMILIES}


@pytest.fixture(scope="module")
def adapters(models, tmp_path_factory) -> dict[tuple[str, str], Path]:
    """Three of each family: over everything, over attention alone, and over some layers with a DoRA's cousin rslora."""
    made = {}
    for family, base in models.items():
        folder = tmp_path_factory.mktemp(f"{family}-adapters")
        made[family, "red"] = make_adapter(base, folder / "red", seed=1)
        made[family, "blue"] = make_adapter(
            base, folder / "blue", seed=2, rank=3, targets=("q_proj", "v_proj", "qkv_proj"), alpha_pattern={"v_proj": 9}
        )
        made[family, "green"] = make_adapter(
            base, folder / "green", seed=3, rank=8, use_rslora=True, layers_to_transform=[1, 2]
        )
    return made


@pytest.fixture(scope="module")
def by_peft(models, adapters):
    """What peft says in one process, by family and adapter: ids, and the logits_V behind each."""

    @cache
    def say(family: str, name: str) -> tuple[list[int], list[torch.Tensor]]:
        return reference_run(peft_reference(models[family], adapters.get((family, name))), PROMPT, NEW)

    return say


@pytest.mark.parametrize("family", FAMILIES)
def test_a_merged_adapter_says_what_peft_says_when_it_has_merged(models, adapters, by_peft, family):
    base, red, stages = models[family], adapters[family, "red"], 2
    want, want_logits = reference_run(merged_reference(base, red), PROMPT, NEW)
    slices = build(base, [adapter_source(red, "merged")], stages)
    got, logits = reply(slices, PROMPT, NEW, piece=len(PROMPT))

    assert_same_reply(got, want, want_logits)
    assert torch.allclose(logits[0], want_logits[0], atol=1e-3)
    assert sum(part.weight_bytes for part in slices) == sum(part.weight_bytes for part in build(base, [], stages))
    assert want != by_peft(family, "")[0]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("lora", LORAS)
def test_each_session_says_what_peft_says_with_its_adapter(models, adapters, by_peft, family, lora):
    names = ("red", "blue", "green")
    slices = build(models[family], [adapter_source(adapters[family, name]) for name in names], 2, lora)
    said = {}
    for name in ("green", "", "red", "blue", "green"):  # each in turn: the choice of one is not the next one's
        want, want_logits = by_peft(family, name)
        said[name], logits = reply(slices, PROMPT, NEW, name)
        assert_same_reply(said[name], want, want_logits)
        assert torch.allclose(logits[0], want_logits[0], atol=2e-3), name

    assert len({tuple(ids) for ids in said.values()}) == 4


@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_an_adapter_beside_the_weights_says_what_it_says_merged_into_them(models, adapters, family):
    base, red = models[family], adapters[family, "red"]
    want, want_logits = reply(build(base, [adapter_source(red, "merged")]), PROMPT, NEW)

    for lora in LORAS:
        chosen = reply(build(base, [adapter_source(red)], lora=lora), PROMPT, NEW, "red")
        always = reply(build(base, [adapter_source(red, "always")], lora=lora), PROMPT, NEW)
        assert_same_reply(chosen[0], want, want_logits)
        assert_same_reply(always[0], want, want_logits)


@pytest.mark.parametrize("family", ["llama", "qwen3"])
@pytest.mark.parametrize("lora", LORAS)
def test_sessions_of_several_adapters_step_together_and_say_what_they_say_alone(models, adapters, family, lora):
    sources = [adapter_source(adapters[family, name]) for name in ("red", "blue", "green")]
    slices = build(models[family], sources, 2, lora)
    mixed = ["blue", "", "red", "blue", "green", "", "red", "red"]
    got = batched_replies(slices, PROMPT, NEW, mixed)

    for name, ids in zip(mixed, got, strict=True):
        assert_same_reply(ids, *reply(slices, PROMPT, NEW, name))


@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_with_adapters_beside_it_the_base_says_the_very_same(models, adapters, family):
    """Bit for bit: what nobody chose changes nothing."""
    bare, bare_logits = reply(build(models[family], []), PROMPT, NEW)
    ids, logits = reply(build(models[family], [adapter_source(adapters[family, "red"])]), PROMPT, NEW)

    assert ids == bare
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(logits, bare_logits, strict=True))


@pytest.mark.parametrize("family", ["llama", "gemma2"])
@pytest.mark.parametrize("lora", LORAS)
def test_a_lone_session_says_the_very_same_through_any_split(models, adapters, family, lora):
    source = adapter_source(adapters[family, "red"])
    whole, whole_logits = reply(build(models[family], [source], 1, lora), PROMPT, NEW, "red")
    for stages in (2, 3):
        ids, logits = reply(build(models[family], [source], stages, lora), PROMPT, NEW, "red")

        assert ids == whole
        assert all(torch.equal(ours, theirs) for ours, theirs in zip(logits, whole_logits, strict=True))


@pytest.mark.parametrize("lora", LORAS)
def test_in_half_precision_the_paths_agree_to_rounding(models, adapters, lora):
    base, red = models["llama"], adapters["llama", "red"]
    want = reference_run(peft_reference(base, red, torch.bfloat16), PROMPT, 1)[1][0].float()
    slices = build(base, [adapter_source(red)], 2, lora, dtype="BF16")
    logits = reply(slices, PROMPT, 1, "red", len(PROMPT))[1][0]

    scale = float(want.std())
    assert float((logits - want).abs().max()) < 0.15 * scale
    if lora == "peft":  # the very same layers, one after another
        assert torch.equal(logits, want)


def test_a_dora_is_computed_by_peft_also_where_it_was_to_be_merged(models, tmp_path):
    base = models["llama"]
    dora = make_adapter(base, tmp_path / "dora", use_dora=True)
    want, want_logits = reference_run(peft_reference(base, dora), PROMPT, NEW)

    for use, name in (("chosen", "dora"), ("always", ""), ("merged", "")):
        got, logits = reply(build(base, [adapter_source(dora, use)], 2, "peft"), PROMPT, NEW, name)
        assert_same_reply(got, want, want_logits)
        assert torch.allclose(logits[0], want_logits[0], atol=2e-3)


def test_an_adapter_that_is_not_held_is_refused_by_name(models, adapters):
    for sources in ([], [adapter_source(adapters["llama", "red"])]):
        (part,) = build(models["llama"], sources)
        with pytest.raises(BadRequest, match="holds no adapter 'blue'"):
            part.adapter_place("blue")
        assert part.adapter_place("") == 0


@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_adapters_count_as_weights(models, adapters, family):
    """In float32 as they are computed; lean16 in the computed type."""
    source = adapter_source(adapters[family, "blue"])
    elements = sum(Path(path).stat().st_size for path in source.tensor_files.values()) // 4
    bare, held = (build(models[family], sources, dtype="BF16") for sources in ([], [source]))
    (half,) = build(models[family], [source], lora="lean16", dtype="BF16")
    added, added_half = held[0].weight_bytes - bare[0].weight_bytes, half.weight_bytes - bare[0].weight_bytes

    assert 2 * added_half == added
    assert 0.7 * elements < added / 4 < elements  # the files have headers beside the numbers


def test_without_adapters_products_are_the_very_same_as_ever(models):
    (part,) = build(models["llama"], [])
    assert isinstance(part, LeanSlice)
    layer = part._parts[0].layers[0]

    assert {type(product) for product in (layer._qkv, layer._out, layer._gate_up, layer._down)} == {DenseProduct}
