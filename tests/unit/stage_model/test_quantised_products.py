"""Products of weights in few bits: bitsandbytes' and torchao's own numbers, whatever the shape."""

import logging

import bitsandbytes
import pytest
import torch
import torch.nn.functional as F
from swarm_stage.model.products.product_of import product_of
from swarm_stage.model.quantized.int4 import quantize_int4, unpacked_int4
from swarm_stage.model.quantized.int4_trial import why_not_int4
from swarm_stage.model.quantized.int8 import quantize_int8
from swarm_stage.model.quantized.nf4 import quantize_nf4
from swarm_stage.model.quantized.quantize import LinearPlace
from swarm_stage.model.quantized.quantized_linear import Int8Linear, Nf4Linear
from swarm_stage.model.quantized.tiles import TILE_ELEMENTS, tile_rows
from torch import nn

CPU = torch.device("cpu")
SHAPES = [(48, 48), (6, 20), (128, 64), (700, 1600)]  # the last is more than a tile


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def with_outliers(rows: int, inputs: int) -> torch.Tensor:
    """Inputs of which some rows have numbers beyond the threshold, each in columns of its own."""
    x_NI = numbers(rows, inputs)
    x_NI[::2, 3] = 40.0
    x_NI[1::3, 5] = -9.0
    return x_NI


def linear_of(weight: torch.Tensor, bias: torch.Tensor | None) -> nn.Linear:
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias is not None)
    linear.weight = nn.Parameter(weight, requires_grad=False)
    if bias is not None:
        linear.bias = nn.Parameter(bias, requires_grad=False)
    return linear


@torch.inference_mode()
def by_bitsandbytes(weight: torch.Tensor, bias: torch.Tensor | None, x_NI: torch.Tensor, bits: int) -> torch.Tensor:
    """What bitsandbytes' own layer gives for each row alone."""
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    outputs, inputs = weight.shape
    if bits == 4:
        layer = bitsandbytes.nn.Linear4bit(
            inputs, outputs, bias is not None, x_NI.dtype, compress_statistics=False, quant_type="nf4"
        )
        layer.weight = bitsandbytes.nn.Params4bit(
            weight.clone(), compress_statistics=False, quant_type="nf4", module=layer
        ).to("cpu")
    else:
        layer = bitsandbytes.nn.Linear8bitLt(inputs, outputs, bias is not None, has_fp16_weights=False, threshold=6.0)
        layer.weight = bitsandbytes.nn.Int8Params(weight.clone(), requires_grad=False).to("cpu")
    if bias is not None:
        layer.bias = nn.Parameter(bias, requires_grad=False)
    layer.eval()
    return torch.cat([layer(row_1I) for row_1I in x_NI.split(1)])


@pytest.mark.parametrize("rows", [1, 3, 30])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("bits", [4, 8])
def test_a_product_is_bitsandbytes_own_to_rounding(bits, shape, has_bias, rows):
    weight, x = numbers(*shape), with_outliers(rows, shape[1])
    bias = numbers(shape[0]) if has_bias else None
    linear = linear_of(weight, bias)
    ours = (
        Nf4Linear(linear, quantize_nf4(weight, torch.float32, CPU), torch.float32)
        if bits == 4
        else Int8Linear(linear, quantize_int8(weight, torch.float32, CPU))
    )
    want = by_bitsandbytes(weight, bias, x, bits)
    tolerance = 1e-5 * float(want.abs().max())

    with torch.inference_mode():
        assert torch.allclose(ours(x), want, rtol=0, atol=tolerance)
        assert torch.allclose(ours(x[None])[0], want, rtol=0, atol=tolerance)
        assert torch.allclose(product_of([ours])(x), want, rtol=0, atol=tolerance)


@pytest.mark.parametrize("shape", [(5, 21), (3, 7), (1, 1)])
def test_rows_of_odd_length_are_unpacked_without_a_compiler(shape):
    """bitsandbytes compiles code of its own for them when it is first asked."""
    weight = numbers(*shape)
    held = quantize_nf4(weight, torch.float32, CPU)
    code = bitsandbytes.functional.get_4bit_type("nf4", device="cpu")
    packed = held.packed.int()
    codes = torch.stack([packed >> 4, packed & 15], dim=1).view(-1)[: weight.numel()]
    want = (code[codes] * held.absmax.repeat_interleave(64)[: weight.numel()]).view(shape)

    assert torch.equal(held.unpacked(0, shape[0], torch.float32), want)
    assert torch.allclose(held.product(numbers(2, shape[1])), numbers(2, shape[1]) @ want.t(), atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_goes_in_and_comes_out(dtype):
    weight, x = numbers(64, 64), with_outliers(3, 64).to(dtype)
    held = quantize_nf4(weight, dtype, CPU), quantize_int8(weight, dtype, CPU)
    for weight_held, bits in zip(held, (4, 8), strict=True):
        got, want = weight_held.product(x), by_bitsandbytes(weight.to(dtype), None, x, bits)

        assert got.dtype is dtype
        assert torch.allclose(got.float(), want.float(), rtol=0.02, atol=0.02 * float(want.abs().max()))


@pytest.mark.parametrize("rows", [1, 4, 16])
def test_rows_of_an_int8_batch_come_out_bit_for_bit_as_alone(rows):
    """A last place of difference would be rounded to another code by the next layer, and be none any more."""
    held, x = quantize_int8(numbers(96, 64), torch.float32, CPU), with_outliers(rows, 64)
    alone = torch.cat([held.product(row_1I) for row_1I in x.split(1)])

    assert torch.equal(held.product(x), alone)


@pytest.mark.parametrize("rows", [1, 2, 9])
@pytest.mark.parametrize(("outputs", "inputs"), [((64, 16, 16), 64), ((64, 64), 160), ((96,), 128)])
def test_an_int4_product_is_that_of_the_unpacked_weight_alone_and_in_a_batch(outputs, inputs, rows):
    weights = [numbers(count, inputs) for count in outputs]
    x = numbers(rows, inputs)
    first, *others = (quantize_int4(weight, CPU) for weight in weights)
    joined = first.joined(others) or first
    want = F.linear(x.to(torch.bfloat16).float(), torch.cat([unpacked_int4(weight) for weight in weights]))
    got = joined.product(x)

    assert torch.allclose(got, want[:, : got.shape[1]], rtol=0, atol=0.02 * float(want.abs().max()))
    assert torch.equal(got, torch.cat([joined.product(row_1I) for row_1I in x.split(1)]))


def test_int4_weights_join_only_at_whole_tiles():
    first, second = quantize_int4(numbers(48, 64), CPU), quantize_int4(numbers(64, 64), CPU)

    assert first.joined([second]) is None
    assert second.joined([first]).shape == (112, 64)


@pytest.mark.parametrize(("outputs", "inputs"), [(64, 48), (40, 64)])
def test_why_int4_cannot_hold_a_layer_names_the_layer(outputs, inputs):
    fits, does_not = LinearPlace(64, 64, CPU), LinearPlace(outputs, inputs, CPU)

    assert why_not_int4([fits]) is None
    assert f"{outputs} outputs and {inputs} inputs" in why_not_int4([fits, does_not])


def test_a_device_that_cannot_run_the_kernels_is_named():
    """The meta device computes nothing, as a card without kernels; it raises as one does."""
    why_not = why_not_int4([LinearPlace(64, 64, torch.device("meta"))])

    assert why_not is not None and why_not.startswith("meta: ")


def test_layers_that_share_their_input_are_one_product():
    weights = [numbers(64, 64), numbers(32, 64), numbers(32, 64)]
    biases = [numbers(64), numbers(32), numbers(32)]
    linears = [
        Nf4Linear(linear_of(weight, bias), quantize_nf4(weight, torch.float32, CPU), torch.float32)
        for weight, bias in zip(weights, biases, strict=True)
    ]
    x, base = numbers(3, 64), numbers(3, 128)
    before = base.clone()
    want = torch.cat([linear(x) for linear in linears], dim=1)
    product = product_of(linears)

    assert torch.allclose(product(x), want, atol=1e-4)
    assert torch.allclose(product.added_to(base, x), base + want, atol=1e-4)
    assert torch.equal(base, before)


def test_tiles_begin_where_blocks_do():
    assert tile_rows((10**6, 48), 64) % 4 == 0  # 4 rows of 48 are 3 blocks
    assert tile_rows((10**6, 64), 64) == TILE_ELEMENTS // 64
    assert tile_rows((10, 64), 64) == 10
    assert tile_rows((4, TILE_ELEMENTS * 2)) == 1
