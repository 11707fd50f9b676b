"""Weights in few bits: the bytes are those of a quantised from_pretrained, and take what the planner says."""

import pytest
import torch
from safetensors.torch import load_file, save_file
from swarm_core.errors import CapabilityMissing, ServableCorrupt
from swarm_core.quantization import INT4_FAST, INT8, METHODS, NF4, NONE, held_bytes, int4_group, is_quantized_weight
from swarm_core.slices import LayerRange
from swarm_stage.model.build_slice import build_slice
from swarm_stage.model.devices import spread_over
from swarm_stage.model.holding import Holding
from swarm_stage.model.quantized.nf4 import quantize_nf4
from swarm_stage.model.quantized.quantize import quantizer_of
from swarm_stage.model.quantized.quantized_weight import chunk_elements, quantized_weight_of
from swarm_stage.model.skeleton import empty_decoder
from swarm_stage.model.slice_config import slice_config
from swarm_stage.model.weights import fill_parameters
from torch import nn

from tests.models import FAMILIES, make_tiny_model, read_config, split_tensors
from tests.unit.stage_model.quantised import TORCH_DTYPES, build_quantised, load_quantised_reference

LAYERS = LayerRange(0, 2, 2)
# Whole NF4 blocks, as every real model has, and what int4-fast can take.
WIDE = {"hidden_size": 64, "intermediate_size": 128}
UP = "model.layers.1.mlp.up_proj.weight"


def fill(folder, method: str, dtype: str = "F32"):
    """transformers' model of the folder with our linear layers in it."""
    config, torch_dtype = read_config(folder), TORCH_DTYPES[dtype]
    model = empty_decoder(slice_config(config, LAYERS), LAYERS, torch_dtype)
    quantizer = quantizer_of(method, torch_dtype, [])
    files, spread = split_tensors(folder, folder / "tensors"), spread_over(LAYERS, "cpu", ())
    fill_parameters(model, LAYERS, files, spread, lambda done, total: None, quantize=quantizer.quantize)
    return model


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.mark.parametrize("method", [NF4, INT8])
@pytest.mark.parametrize(
    ("family", "dtype", "stored"),
    [
        ("llama", "F32", "F32"),
        ("llama", "BF16", "F32"),  # cast to what is computed in, then quantised
        ("llama", "F32", "BF16"),
        ("qwen2", "F16", "BF16"),
        ("gemma2", "BF16", "BF16"),
        ("phi3", "F32", "F32"),
    ],
)
def test_the_bytes_are_those_of_a_quantised_from_pretrained(family, dtype, stored, method, tmp_path):
    folder = make_tiny_model(family, tmp_path, layers=2)
    tensors = {
        name: tensor.to(TORCH_DTYPES[stored]) for name, tensor in load_file(folder / "model.safetensors").items()
    }
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    ours = dict(fill(folder, method, dtype).named_modules())
    compared = 0
    for name, theirs in load_quantised_reference(folder, method, dtype).named_modules():
        held = quantized_weight_of(ours[name])
        assert (held is not None) == (type(theirs).__name__ in ("Linear4bit", "Linear8bitLt")), name
        if held is not None and method == NF4:
            assert torch.equal(held.packed, theirs.weight.data.view(-1)), name
            assert torch.equal(held.absmax, theirs.weight.quant_state.absmax), name
        elif held is not None:
            assert torch.equal(held.codes_OI, theirs.weight.data), name
            assert torch.equal(held.scales_O, theirs.weight.SCB), name
        elif isinstance(theirs, nn.Linear | nn.Embedding):
            assert torch.equal(ours[name].weight, theirs.weight), name
        compared += held is not None

    assert compared == sum(is_quantized_weight(name) for name in tensors)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_linear_layers_of_a_family_are_known_by_their_names(family, tmp_path):
    """The planner and the fetcher go by names; torch goes by modules."""
    config = read_config(make_tiny_model(family, tmp_path, layers=2))
    model = empty_decoder(slice_config(config, LAYERS), LAYERS, torch.float32)
    linear = {name for name, module in model.named_modules() if isinstance(module, nn.Linear)} - {"lm_head"}

    assert linear == {name.removesuffix(".weight") for name, _ in model.named_parameters() if is_quantized_weight(name)}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("family", ["llama", "qwen2", "phi3"])
def test_a_slice_takes_what_the_planner_says(family, method, tmp_path):
    folder = make_tiny_model(family, tmp_path, **WIDE)
    (whole,) = build_quantised(folder, method, 1)
    planned = sum(
        held_bytes(method, tensor.shape, 4) if is_quantized_weight(name) else tensor.nbytes
        for name, tensor in load_file(folder / "model.safetensors").items()
    )

    assert whole.quantization == method
    assert whole.weight_bytes == planned


def test_no_quantization_is_full_precision_by_either_spelling(tmp_path):
    folder = make_tiny_model("llama", tmp_path)
    whole, plain = *build_quantised(folder, NONE, 1), *build_quantised(folder, "", 1)

    assert whole.weight_bytes == plain.weight_bytes
    assert whole.quantization == plain.quantization == NONE


@pytest.mark.parametrize("shape", [(48, 48), (6, 20), (5, 21), (3, 7), (70, 96), (1, 1)])
def test_a_weight_of_any_shape_is_quantised_by_chunks_as_at_once(shape):
    """Also where blocks go on into the next row, or the last one is not whole."""
    weight = numbers(*shape)
    packed, absmax = torch.ops.bitsandbytes.quantize_4bit.default(weight, 64, "nf4", torch.uint8)
    held = quantize_nf4(weight, torch.float32, torch.device("cpu"))

    assert torch.equal(held.packed, packed.view(-1)) and torch.equal(held.absmax, absmax)


def test_a_weight_longer_than_a_chunk_is_quantised_as_at_once():
    weight = numbers(700, 1600)
    assert weight.numel() > chunk_elements(torch.device("cpu"))
    packed, absmax = torch.ops.bitsandbytes.quantize_4bit.default(weight, 64, "nf4", torch.uint8)
    held = quantize_nf4(weight, torch.float32, torch.device("cpu"))

    assert torch.equal(held.packed, packed.view(-1)) and torch.equal(held.absmax, absmax)


def test_layers_are_joined_only_where_the_bytes_allow_it():
    device = torch.device("cpu")
    parts = [numbers(rows, 48) for rows in (4, 8, 4)]
    whole = quantize_nf4(torch.cat(parts), torch.float32, device)
    first, *others = (quantize_nf4(part, torch.float32, device) for part in parts)
    joined = first.joined(others)
    odd = quantize_nf4(numbers(5, 48), torch.float32, device)

    assert torch.equal(joined.packed, whole.packed) and torch.equal(joined.absmax, whole.absmax)
    assert odd.joined([first]) is None


def spoiled(folder, name: str, value: float, dtype: torch.dtype = torch.float32) -> dict[str, str]:
    """The model's files, with one number of one tensor changed."""
    files = split_tensors(folder, folder / "tensors")
    tensor = load_file(files[name])["tensor"].to(dtype)
    tensor.view(-1)[-1] = value
    save_file({"tensor": tensor}, files[name])
    return files


@pytest.mark.parametrize(
    ("name", "value", "method"),
    [
        *((UP, float("nan"), method) for method in METHODS),
        ("model.embed_tokens.weight", float("nan"), NONE),
        ("model.norm.weight", float("inf"), NONE),
        ("lm_head.weight", float("-inf"), NF4),
    ],
)
def test_one_number_that_is_none_fails_the_load_by_name(name, value, method, tmp_path):
    """In an embedding no prompt of the warm-up uses, in the norm, in the head: wherever it is."""
    folder = make_tiny_model("llama", tmp_path, layers=2, tied=False, **WIDE)
    files = spoiled(folder, name, value)

    with pytest.raises(ServableCorrupt, match=rf"tensor {name} is corrupt") as caught:
        build_slice(read_config(folder), LAYERS, files, Holding("F32", quantization=method), lambda done, total: None)
    assert caught.value.facts["tensor"] == name


@pytest.mark.parametrize(
    ("method", "dtype", "says"),
    [(INT8, "F32", "float16"), (NF4, "F16", "float16"), (NONE, "F16", "float16"), (INT8, "BF16", "float16")],
)
def test_a_number_too_large_for_what_is_quantised_from_fails_the_load_by_name(method, dtype, says, tmp_path):
    folder = make_tiny_model("llama", tmp_path, layers=2, **WIDE)
    files = spoiled(folder, UP, 70000.0)
    holding = Holding(dtype, quantization=method)

    with pytest.raises(ServableCorrupt, match=rf"tensor {UP} holds numbers too large for {says}"):
        build_slice(read_config(folder), LAYERS, files, holding, lambda done, total: None)


def test_a_method_that_does_not_exist_is_refused_before_a_file_is_read(tmp_path):
    folder = make_tiny_model("llama", tmp_path, layers=2)
    holding = Holding("F32", quantization="gptq")

    with pytest.raises(CapabilityMissing, match="'gptq' does not exist; one of: none, nf4, int8, int4-fast"):
        build_slice(read_config(folder), LAYERS, {"a": "/", "b": "/"}, holding, lambda done, total: None)


def test_what_int4_fast_cannot_hold_is_nf4_and_says_so(tmp_path):
    """48 inputs are no multiple of 32, the least its kernels take together."""
    folder = make_tiny_model("llama", tmp_path)
    assert int4_group(48) == 0
    (whole,), (held_in_nf4,) = build_quantised(folder, INT4_FAST, 1), build_quantised(folder, NF4, 1)

    assert whole.quantization == NF4
    assert whole.weight_bytes == held_in_nf4.weight_bytes
    assert "int4-fast cannot run here" in whole.notes[0] and "48 inputs" in whole.notes[0]
