"""Numbers become NF4 by our own comparisons on a processor: the bytes must be bitsandbytes' own."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from swarm_stage.model.quantized.nf4 import quantize_nf4

BLOCK = 64


def assert_as_bitsandbytes(weight_OI: torch.Tensor, dtype: torch.dtype) -> None:
    """Codes and scales, bit for bit."""
    held = quantize_nf4(weight_OI, dtype, torch.device("cpu"))
    packed, absmax = torch.ops.bitsandbytes.quantize_4bit.default(weight_OI.to(dtype), BLOCK, "nf4", torch.uint8)

    assert torch.equal(held.packed, packed.view(-1))
    assert torch.equal(held.absmax, absmax.view(-1))


@settings(max_examples=60)
@given(seed=st.integers(0, 10**6), exponent=st.integers(-37, 37), rows=st.integers(1, 9), blocks=st.integers(1, 3))
def test_random_numbers_of_every_size_and_shape_get_the_codes_of_bitsandbytes(seed, exponent, rows, blocks):
    draws = torch.Generator().manual_seed(seed)

    assert_as_bitsandbytes(torch.randn(rows, blocks * BLOCK, generator=draws) * 10.0**exponent, torch.float32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_numbers_on_and_beside_the_bounds_get_the_codes_of_bitsandbytes(dtype):
    """Sixteenths meet bounds and zero; a block of zeros has a scale of nothing; neighbours differ by a bit."""
    sixteenths = (torch.arange(64 * BLOCK) % 33 - 16).view(64, BLOCK) / 16
    bounds = torch.linspace(-1, 1, 40 * BLOCK).view(40, BLOCK)
    beside = torch.nextafter(bounds, torch.tensor(2.0))

    assert_as_bitsandbytes(
        torch.cat([sixteenths, torch.zeros(2, BLOCK), -torch.zeros(1, BLOCK), bounds, beside]), dtype
    )


def test_more_numbers_than_one_pass_looks_at_get_the_codes_of_bitsandbytes():
    assert_as_bitsandbytes(torch.randn(1200, 192, generator=torch.Generator().manual_seed(1)), torch.float32)
