"""Products of few rows: what they give is what linear layers give."""

import pytest
import torch
import torch.nn.functional as F
from swarm_stage.model.product import Product, head_logits


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.mark.parametrize("rows", [1, 2, 8, 100])
@pytest.mark.parametrize(("outputs", "inputs"), [((48, 16, 16), 64), ((96, 96), 64), ((64,), 96)])
@pytest.mark.parametrize("has_bias", [True, False])
def test_fused_layers_give_what_they_give_one_by_one(rows, outputs, inputs, has_bias):
    weights = [numbers(count, inputs) for count in outputs]
    biases = [numbers(count) for count in outputs] if has_bias else [None] * len(outputs)
    product = Product(weights, torch.cat(biases) if has_bias else None)
    x = numbers(rows, inputs)
    one_by_one = torch.cat([F.linear(x, weight, bias) for weight, bias in zip(weights, biases, strict=True)], dim=1)

    assert torch.allclose(product(x), one_by_one, atol=1e-4)
    assert torch.allclose(product.added_to(one_by_one, x), 2 * one_by_one, atol=1e-4)


def test_a_product_may_not_change_what_it_is_added_to():
    product, base = Product([numbers(8, 8)], numbers(8)), torch.ones(2, 8)
    product.added_to(base, numbers(2, 8))

    assert torch.equal(base, torch.ones(2, 8))


@pytest.mark.parametrize("rows", [1, 2, 8])
@pytest.mark.parametrize("vocabulary", [100, 1024, 2500])
def test_a_head_computed_in_parts_gives_the_logits_of_the_whole(rows, vocabulary):
    weight, hidden = numbers(vocabulary, 32), numbers(rows, 32)

    assert torch.allclose(head_logits(hidden, weight), F.linear(hidden, weight), atol=1e-4)
