"""Adapters from their files: what is read, what a slice keeps, and what is refused by its tensor's name."""

import math
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from swarm_core.errors import CapabilityMissing, ServableCorrupt
from swarm_core.slices import LayerRange
from swarm_stage.model.adapters.adapter import ADAPTERS_MAX, Adapter, merge_of, read_adapters
from swarm_stage.model.holding import AdapterSource
from swarm_stage.model.skeleton import empty_decoder
from swarm_stage.model.slice_config import slice_config

from tests.lora import adapter_source, edit_adapter_config, make_adapter, merged_reference
from tests.models import make_tiny_model, read_config

WHOLE = LayerRange(0, 4, 4)
Q_PROJ = "model.layers.2.self_attn.q_proj"


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return make_tiny_model("llama", tmp_path_factory.mktemp("llama"), layers=4)


@pytest.fixture(scope="module")
def saved(llama, tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved") / "red"
    return make_adapter(llama, folder, rank_pattern={"q_proj": 6}, alpha_pattern={"v_proj": 3}, use_rslora=True)


@pytest.fixture
def adapter(saved, tmp_path):
    """A copy to spoil."""
    return shutil.copytree(saved, tmp_path / "red")


def read(llama, *sources: AdapterSource, layers: LayerRange = WHOLE, lora: str = "lean") -> tuple[Adapter, ...]:
    with torch.device("meta"):
        model = empty_decoder(slice_config(read_config(llama), layers), layers, torch.float32)
    return read_adapters(sources, model, layers, lora)


def rewrite(source: AdapterSource, name: str, tensor: torch.Tensor) -> AdapterSource:
    save_file({"tensor": tensor}, source.tensor_files[name])
    return source


def test_every_number_is_the_files(llama, adapter):
    (red,) = read(llama, adapter_source(adapter))
    stored = load_file(adapter / "adapter_model.safetensors")

    assert (red.model_id, red.use, len(red.parts)) == ("red", "chosen", 4 * 7)
    for module, part in red.parts.items():
        assert torch.equal(part.a_RI, stored[f"base_model.model.{module}.lora_A.weight"])
        assert torch.equal(part.b_OR, stored[f"base_model.model.{module}.lora_B.weight"])
        rank, alpha = (6 if "q_proj" in module else 4), (3 if "v_proj" in module else 8)
        assert part.scale == pytest.approx(alpha / math.sqrt(rank))


def test_numbers_stored_in_half_precision_are_read_as_they_are(llama, adapter):
    source = adapter_source(adapter)
    a_RI = load_file(source.tensor_files[f"{Q_PROJ}.lora_A.weight"])["tensor"].bfloat16()
    (red,) = read(llama, rewrite(source, f"{Q_PROJ}.lora_A.weight", a_RI))

    assert torch.equal(red.parts[Q_PROJ].a_RI, a_RI.float())


@pytest.mark.parametrize("layers", [LayerRange(0, 2, 4), LayerRange(2, 3, 4), LayerRange(3, 4, 4)])
def test_a_slice_keeps_only_its_layers(llama, adapter, layers):
    (red,) = read(llama, adapter_source(adapter), layers=layers)

    assert {int(module.split(".")[2]) for module in red.parts} == set(range(layers.layer_start, layers.layer_stop))


def test_a_slice_may_have_no_part_of_an_adapter(llama, tmp_path):
    adapter = make_adapter(llama, tmp_path / "top", layers_to_transform=[3])
    (top,) = read(llama, adapter_source(adapter), layers=LayerRange(0, 2, 4))

    assert top.parts == {}


def test_merging_gives_what_peft_merges(llama, adapter):
    """In float32 bit for bit; tensors the adapter does not change are left as they are."""
    adapters = read(llama, adapter_source(adapter, "merged"))
    amend = merge_of(adapters)
    assert amend is not None
    base, merged = load_file(llama / "model.safetensors"), dict(merged_reference(llama, adapter).named_parameters())
    changed = {name for name, tensor in base.items() if not torch.equal(amend(name, tensor), tensor)}

    assert changed == {f"{module}.weight" for module in adapters[0].parts}
    for name in changed:
        assert torch.equal(amend(name, base[name]), merged[name]), name


def test_a_weight_in_half_precision_is_summed_in_float32(llama, adapter):
    (red,) = read(llama, adapter_source(adapter, "merged"))
    part, weight = red.parts[Q_PROJ], load_file(llama / "model.safetensors")[f"{Q_PROJ}.weight"].bfloat16()
    amend = merge_of([red])
    assert amend is not None

    assert torch.equal(amend(f"{Q_PROJ}.weight", weight), weight.float() + (part.b_OR @ part.a_RI) * part.scale)


def test_nothing_is_amended_where_nothing_is_merged(llama, adapter):
    assert merge_of(read(llama, adapter_source(adapter))) is None


@pytest.mark.parametrize("half", ["lora_A", "lora_B"])
def test_a_missing_half_is_named(llama, adapter, half):
    source = adapter_source(adapter)
    del source.tensor_files[f"{Q_PROJ}.{half}.weight"]

    with pytest.raises(ServableCorrupt, match=rf"{Q_PROJ}\.{half}\.weight is missing") as refusal:
        read(llama, source)
    assert refusal.value.facts["tensor"] == f"{Q_PROJ}.{half}.weight"


@pytest.mark.parametrize(
    ("half", "shape"),
    [("lora_A", (6, 47)), ("lora_A", (5, 48)), ("lora_B", (64, 7)), ("lora_B", (6, 64)), ("lora_A", (288,))],
)
def test_another_shape_than_base_and_rank_ask_for_is_named(llama, adapter, half, shape):
    source = adapter_source(adapter)
    with pytest.raises(ServableCorrupt, match=rf"{Q_PROJ}\.{half}\.weight has shape"):
        read(llama, rewrite(source, f"{Q_PROJ}.{half}.weight", torch.zeros(shape)))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_not_finite_are_named(llama, adapter, bad):
    source = adapter_source(adapter)
    b_OR = load_file(source.tensor_files[f"{Q_PROJ}.lora_B.weight"])["tensor"].clone()
    b_OR[3, 2] = bad

    with pytest.raises(ServableCorrupt, match=rf"{Q_PROJ}\.lora_B\.weight .*NaN or infinity"):
        read(llama, rewrite(source, f"{Q_PROJ}.lora_B.weight", b_OR))


def test_which_of_several_adapters_is_wrong_is_said(llama, adapter):
    """Their tensors have the same names."""
    right, wrong = adapter_source(adapter, model_id="ann/right"), adapter_source(adapter, model_id="ann/wrong")
    del wrong.tensor_files[f"{Q_PROJ}.lora_B.weight"]

    with pytest.raises(ServableCorrupt, match=rf"adapter ann/wrong: tensor {Q_PROJ}\.lora_B\.weight is missing"):
        read(llama, right, wrong)


def test_a_tensor_of_whole_numbers_is_named(llama, adapter):
    source = adapter_source(adapter)
    with pytest.raises(ServableCorrupt, match=rf"{Q_PROJ}\.lora_A\.weight is of type"):
        read(llama, rewrite(source, f"{Q_PROJ}.lora_A.weight", torch.zeros(6, 48, dtype=torch.int32)))


def test_a_file_that_is_cut_off_is_named(llama, adapter, tmp_path):
    source = adapter_source(adapter)
    path = tmp_path / "cut.safetensors"
    with open(source.tensor_files[f"{Q_PROJ}.lora_A.weight"], "rb") as file:  # noqa: PTH123 - a str
        path.write_bytes(file.read()[:40])
    source.tensor_files[f"{Q_PROJ}.lora_A.weight"] = str(path)

    with pytest.raises(ServableCorrupt, match=rf"{Q_PROJ}\.lora_A\.weight cannot be read"):
        read(llama, source)


@pytest.mark.parametrize(
    "name",
    [
        "model.layers.2.self_attn.z_proj.lora_A.weight",  # no such module
        "model.layers.2.self_attn.lora_A.weight",  # no linear layer
        "model.layers.2.input_layernorm.lora_A.weight",
        "lm_head.lora_A.weight",  # outside the layers
        "model.embed_tokens.lora_embedding_A",
        "model.layers.2.self_attn.q_proj.weight",  # no adapter's
        "model.layers.2.self_attn.q_proj.lora_magnitude_vector",  # of a DoRA, which this one does not say it is
    ],
)
def test_a_tensor_that_changes_nothing_the_base_has_is_named(llama, adapter, name):
    source = adapter_source(adapter)
    save_file({"tensor": torch.zeros(4, 48)}, adapter / "stranger.safetensors")
    source.tensor_files[name] = str(adapter / "stranger.safetensors")

    with pytest.raises(ServableCorrupt) as refusal:
        read(llama, source)
    assert refusal.value.facts["tensor"] == name


def test_a_rank_that_differs_from_what_the_config_says_is_refused(llama, adapter):
    edit_adapter_config(adapter, r=7)
    with pytest.raises(ServableCorrupt, match=r"lora_A\.weight has shape \[4, "):
        read(llama, adapter_source(adapter))


@pytest.mark.parametrize("lora", ["lean", "lean16"])
def test_dora_is_refused_by_name_where_peft_does_not_compute_it(llama, adapter, lora):
    edit_adapter_config(adapter, use_dora=True)
    with pytest.raises(CapabilityMissing, match=rf"red is of the kind dora.*{lora} \(SWARM_SERVE_LORA\)"):
        read(llama, adapter_source(adapter), lora=lora)


def test_dora_without_its_magnitudes_is_refused(llama, adapter):
    edit_adapter_config(adapter, use_dora=True)
    with pytest.raises(ServableCorrupt, match="lora_magnitude_vector is missing"):
        read(llama, adapter_source(adapter), lora="peft")


def test_the_same_adapter_twice_too_many_and_unknown_ways_are_refused(llama, adapter):
    source = adapter_source(adapter)
    crowd = [adapter_source(adapter, model_id=f"a{place}") for place in range(ADAPTERS_MAX + 1)]

    with pytest.raises(ServableCorrupt, match="twice"):
        read(llama, source, source)
    with pytest.raises(CapabilityMissing, match=f"at most {ADAPTERS_MAX}"):
        read(llama, *crowd)
    with pytest.raises(CapabilityMissing, match="lean, lean16, peft"):
        read(llama, source, lora="fast")
    with pytest.raises(ServableCorrupt, match="used 'sometimes'"):
        read(llama, adapter_source(adapter, "sometimes"))
