"""Weights held in half precision under float32: the numbers of the cast weights, in half the memory."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from swarm_core.errors import BadRequest, ServableCorrupt
from swarm_core.slices import LayerRange
from swarm_stage.model.build_slice import build_slice
from swarm_stage.model.holding import DeviceLayers, Holding
from swarm_stage.model.lean.slice import LeanSlice
from swarm_stage.model.products.half import HalfEmbedding, HalfLinear, HalfMultiplier, Upcast, hold_half
from swarm_stage.model.products.product import DenseProduct
from swarm_stage.model.slice_model import SliceModel
from torch import nn

from tests.models import make_tiny_model, read_config, split_tensors
from tests.unit.stage_model.slices import run_greedy

PROMPT = [5, 9, 200, 31, 77, 12, 8]
WHOLE = LayerRange(0, 4, 4)
HALVES = {"F16": torch.float16, "BF16": torch.bfloat16}


def published_in(storage: str, folder: Path) -> Path:
    """The model in `folder` as if it had been published in this type."""
    weights = folder / "model.safetensors"
    cast = {name: tensor.to(HALVES[storage]) for name, tensor in load_file(weights).items()}
    save_file(cast, weights, metadata={"format": "pt"})
    return folder


def build(folder: Path, holding: Holding, layers: LayerRange = WHOLE) -> SliceModel:
    files = split_tensors(folder, folder / "tensors")
    return build_slice(read_config(folder), layers, files, holding, lambda done, total: None)


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.mark.parametrize("storage", ["F16", "BF16"])
@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "gemma2", "gemma3_text", "cohere", "phi3"])
@pytest.mark.parametrize("tied", [True, False])
def test_replies_are_bit_for_bit_those_of_the_weights_cast_at_load(family, storage, tied, tmp_path):
    folder = published_in(storage, make_tiny_model(family, tmp_path, tied=tied))
    full, half = build(folder, Holding("F32")), build(folder, Holding("F32", storage_dtype=storage))
    tokens, logits = run_greedy([full], PROMPT, 8, piece=3)
    half_tokens, half_logits = run_greedy([half], PROMPT, 8, piece=3)

    assert half_tokens == tokens
    assert torch.equal(torch.stack(half_logits), torch.stack(logits))


@pytest.mark.parametrize("family", ["llama", "gemma2"])
@pytest.mark.parametrize("layers", [LayerRange(0, 2, 4), LayerRange(2, 4, 4), LayerRange(0, 4, 4)])
def test_half_the_bytes_are_held(family, layers, tmp_path):
    """But for norms, which are small and stay in float32."""
    folder = make_tiny_model(family, tmp_path)
    full, half = build(folder, Holding("F32"), layers), build(folder, Holding("F32", storage_dtype="F16"), layers)

    assert 0.5 <= half.weight_bytes / full.weight_bytes < 0.52
    assert half.kv_bytes_per_token == full.kv_bytes_per_token


def test_batches_read_half_weights_too(tmp_path):
    folder = published_in("BF16", make_tiny_model("llama", tmp_path))

    def step(holding: Holding) -> torch.Tensor:
        part = build(folder, holding)
        assert isinstance(part, LeanSlice)
        caches = [part.new_cache() for _ in range(4)]
        for length, cache in enumerate(caches, 1):
            part.run(part.embed(PROMPT[:length]), cache, 0)
        return part.logits_batch(part.run_batch(part.embed([7, 8, 9, 3]).transpose(0, 1), caches, [1, 2, 3, 4]))

    assert torch.equal(step(Holding("F32", storage_dtype="BF16")), step(Holding("F32")))


def test_halves_over_two_devices_give_what_one_gives(tmp_path):
    folder = published_in("F16", make_tiny_model("llama", tmp_path))
    one = Holding("F32", storage_dtype="F16")
    two = replace(one, device_layers=(DeviceLayers("cpu:0", 0, 1), DeviceLayers("cpu:1", 1, 4)))
    _, logits = run_greedy([build(folder, one)], PROMPT, 4)
    _, spread_logits = run_greedy([build(folder, two)], PROMPT, 4)

    assert torch.equal(torch.stack(spread_logits), torch.stack(logits))


def test_storage_that_is_what_is_computed_in_changes_nothing(tmp_path):
    folder = make_tiny_model("llama", tmp_path)
    plain, same = build(folder, Holding("F32")), build(folder, Holding("F32", storage_dtype="F32"))

    assert same.weight_bytes == plain.weight_bytes


@pytest.mark.parametrize(("dtype", "storage"), [("BF16", "F16"), ("F16", "BF16"), ("F32", "F64"), ("F16", "F32")])
def test_other_types_under_others_are_refused(dtype, storage, tmp_path):
    folder = make_tiny_model("llama", tmp_path)
    with pytest.raises(BadRequest, match=f"held in '{storage}' are not computed in {dtype}"):
        build(folder, Holding(dtype, storage_dtype=storage))


def test_a_number_too_large_for_half_precision_fails_the_load(tmp_path):
    """In float16 it would be infinity, and every reply nothing."""
    folder = make_tiny_model("llama", tmp_path)
    files = split_tensors(folder, folder / "tensors")
    name = "model.layers.1.mlp.up_proj.weight"
    weight = load_file(files[name])["tensor"]
    weight[3, 5] = 1e6
    save_file({"tensor": weight}, files[name])

    with pytest.raises(ServableCorrupt, match=f"{name}.*too large for float16"):
        build_slice(
            read_config(folder),
            LayerRange(0, 4, 4),
            files,
            Holding("F32", storage_dtype="F16"),
            lambda done, total: None,
        )


@pytest.mark.parametrize("rows", [1, 2, 8, 100])
@pytest.mark.parametrize("shape", [(96, 64), (64, 96), (1, 8), (8, 1)])
@pytest.mark.parametrize("has_bias", [True, False])
def test_a_product_of_halves_is_that_of_the_cast_weights(rows, shape, has_bias):
    weights = [numbers(*shape).half(), numbers(*shape).half() * 2]
    bias = numbers(2 * shape[0]) if has_bias else None
    x, base = numbers(rows, shape[1]), numbers(rows, 2 * shape[0])
    upcast = Upcast(torch.float32)
    half = DenseProduct(weights, bias, lambda weight_IO: HalfMultiplier(weight_IO, upcast))
    full = DenseProduct([weight.float() for weight in weights], bias)

    assert torch.equal(half(x), full(x))
    assert torch.equal(half.added_to(base, x), full.added_to(base, x))


@pytest.mark.parametrize("rows", [1, 3, 40])
def test_a_weight_too_large_to_cast_at_once_is_cast_in_pieces(rows):
    linear = nn.Linear(32, 100)
    small, whole = (HalfLinear(linear, torch.float16, Upcast(torch.float32, size)) for size in (32 * 4 * 7, 2**20))
    weight = nn.Parameter(numbers(100, 32).half(), requires_grad=False)
    small.weight = whole.weight = weight
    x, base = numbers(rows, 32), numbers(rows, 100)
    with torch.inference_mode():
        expected = F.linear(x, weight.float(), linear.bias)
        times = HalfMultiplier(weight.t(), small.upcast)

        assert len(small.upcast.pieces(100, 32)) == 15
        assert torch.equal(whole(x), expected)
        assert torch.allclose(small(x), expected, atol=1e-5)
        assert torch.allclose(times(x), x @ weight.float().t(), atol=1e-5)
        assert torch.allclose(times.added_to(base, x), base + x @ weight.float().t(), atol=1e-5)


def test_casting_takes_no_more_room_than_one_piece():
    upcast = Upcast(torch.float32, piece_bytes=4000)
    for outputs in (10, 500, 90_000):
        for start, stop in upcast.pieces(outputs, 10):
            assert upcast(torch.ones(stop - start, 10, dtype=torch.float16)).untyped_storage().nbytes() <= 4000


def test_weights_of_the_checkpoint_that_are_no_matrices_stay_as_precise_as_they_were():
    with torch.device("meta"):
        model = nn.ModuleDict(
            {"embed": nn.Embedding(8, 4), "norm": nn.LayerNorm(4), "first": nn.Linear(4, 4), "second": nn.Linear(4, 4)}
        )
    hold_half(model, "BF16", "F32", lambda name: name == "second")

    assert isinstance(model["embed"], HalfEmbedding) and isinstance(model["first"], HalfLinear)
    assert {name for name, kept in model.named_parameters() if kept.dtype is torch.bfloat16} == {
        "embed.weight",
        "first.weight",
    }
