"""Which product holds which linear layers: by what the load made of them. Runs nothing."""

from collections.abc import Callable, Sequence

import torch
from torch import nn

from swarm_stage.model.half import multiplier_of
from swarm_stage.model.product import DenseProduct, Product

# Linear layers that share their input -> one product of them, outputs side by side.
ProductOf = Callable[[Sequence[nn.Module]], Product]


def product_of(linears: Sequence[nn.Module]) -> Product:
    """One product of linear layers that share their input; their weights are given up to it."""
    dense = [linear for linear in linears if isinstance(linear, nn.Linear)]
    assert len(dense) == len(linears), [type(linear).__name__ for linear in linears]
    biases = [linear.bias.data for linear in dense if linear.bias is not None]
    weights = [linear.weight.data for linear in dense]
    return DenseProduct(weights, torch.cat(biases) if biases else None, multiplier_of(dense[0]))
