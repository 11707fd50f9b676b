"""Which product holds which linear layers: by what the load made of them. Runs nothing."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from swarm_stage.model.products.half import multiplier_of
from swarm_stage.model.products.product import DenseProduct, Product
from swarm_stage.model.products.quantized_product import QuantizedProduct
from swarm_stage.model.quantized.quantized_weight import quantized_weight_of

# Linear layers that share their input -> one product of them, outputs side by side.
ProductOf = Callable[[Sequence[nn.Module]], Product]


def product_of(linears: Sequence[nn.Module]) -> Product:
    """One product of linear layers that share their input; their weights are given up to it."""
    held = [weight for weight in map(quantized_weight_of, linears) if weight is not None]
    if len(held) == len(linears):
        return QuantizedProduct(held, [_bias(linear) for linear in linears])
    dense = [linear for linear in linears if isinstance(linear, nn.Linear)]
    assert len(dense) == len(linears) and not held, [type(linear).__name__ for linear in linears]
    biases = [bias for bias in map(_bias, dense) if bias is not None]
    weights = [linear.weight.data for linear in dense]
    return DenseProduct(weights, torch.cat(biases) if biases else None, multiplier_of(dense[0]))


def _bias(linear: Any) -> torch.Tensor | None:
    return None if linear.bias is None else linear.bias.data
