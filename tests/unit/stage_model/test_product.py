"""Products of few rows: what they give is what linear layers give."""

import pytest
import torch
import torch.nn.functional as F
from swarm_stage.model.products.blas import Multiplier, is_numpy_faster
from swarm_stage.model.products.product import DenseProduct


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.mark.parametrize("rows", [1, 2, 8, 100])
@pytest.mark.parametrize(("outputs", "inputs"), [((48, 16, 16), 64), ((96, 96), 64), ((64,), 96)])
@pytest.mark.parametrize("has_bias", [True, False])
def test_fused_layers_give_what_they_give_one_by_one(rows, outputs, inputs, has_bias):
    weights = [numbers(count, inputs) for count in outputs]
    biases = [numbers(count) for count in outputs] if has_bias else [None] * len(outputs)
    product = DenseProduct(weights, torch.cat(biases) if has_bias else None)
    x = numbers(rows, inputs)
    one_by_one = torch.cat([F.linear(x, weight, bias) for weight, bias in zip(weights, biases, strict=True)], dim=1)

    assert torch.allclose(product(x), one_by_one, atol=1e-4)
    assert torch.allclose(product.added_to(one_by_one, x), 2 * one_by_one, atol=1e-4)


def test_a_product_may_not_change_what_it_is_added_to():
    product, base = DenseProduct([numbers(8, 8)], numbers(8)), torch.ones(2, 8)
    product.added_to(base, numbers(2, 8))

    assert torch.equal(base, torch.ones(2, 8))


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 8, 100])
@pytest.mark.parametrize("is_turned", [True, False])
def test_whichever_library_multiplies_the_product_is_the_same(rows, is_turned):
    weight = numbers(48, 64).t() if is_turned else numbers(64, 48)
    x, base = numbers(rows, 64), numbers(rows, 48)
    before = base.clone()

    for by_numpy in (True, False):
        times = Multiplier(weight, by_numpy)
        assert torch.allclose(times(x), x @ weight, atol=1e-4)
        assert torch.allclose(times.added_to(base, x), base + x @ weight, atol=1e-4)
        assert torch.allclose(times.added_to(base[0], x), base[0] + x @ weight, atol=1e-4)
    assert torch.equal(base, before)


def test_half_precision_is_left_to_torch():
    times = Multiplier(numbers(64, 48).to(torch.bfloat16), by_numpy=True)

    assert times(numbers(2, 64).to(torch.bfloat16)).dtype is torch.bfloat16


def test_with_more_threads_than_one_products_are_torchs():
    """OpenBLAS beside torch's own threads took a step of eight from 128 to 384 ms."""
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        assert not is_numpy_faster()
    finally:
        torch.set_num_threads(before)
