"""Matrix products of few rows, as fast as one processor core reads weights. Knows no layer and no session.

Shapes: N rows, I inputs, O outputs.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import torch

from swarm_stage.model.adapters.choice import Chosen
from swarm_stage.model.products.blas import Multiplier
from swarm_stage.model.weight_memory import empty_weight


class Times(Protocol):
    """x W for one matrix that stays where it is."""

    def __call__(self, x_NI: torch.Tensor) -> torch.Tensor:
        """[N, O]."""

    def added_to(self, base_NO: torch.Tensor, x_NI: torch.Tensor) -> torch.Tensor:
        """base + x W, [N, O]. base may be one row for all, and stays as it is."""


MultiplierOf = Callable[[torch.Tensor], Times]


class Product(Protocol):
    """Linear layers that share their input, as one: x -> x W^T + b, however the weights are held."""

    def __call__(self, x_NI: torch.Tensor, chosen: Chosen = None) -> torch.Tensor:
        """[N, O]. chosen: an adapter a row."""

    def added_to(self, base_NO: torch.Tensor, x_NI: torch.Tensor, chosen: Chosen = None) -> torch.Tensor:
        """base + what x gives, [N, O]. base stays as it is."""


class DenseProduct:
    """Linear layers that share their input, as one: x -> x W^T + b. Holds one copy of the weights, as it wants them.

    A row times a matrix is bound by how fast weights come from memory. With outputs side by side ([I, O]) they come at
    17 GB/s, one output after the other ([O, I]) at 10 GB/s, unless there are more inputs than outputs; from 4 rows on
    both are alike (docs/measurements/2026-11-many-requests.md).
    """

    def __init__(
        self, weights: Sequence[torch.Tensor], bias: torch.Tensor | None, multiplier: MultiplierOf = Multiplier
    ) -> None:
        """weights: [O_i, I] each, as checkpoints have them. multiplier: what multiplies by them, as they are held."""
        outputs, inputs = sum(weight.shape[0] for weight in weights), weights[0].shape[1]
        self._times = multiplier(side_by_side(weights) if outputs >= inputs else _joined(weights).t())
        self._bias = bias

    def __call__(self, x_NI: torch.Tensor, chosen: Chosen = None) -> torch.Tensor:
        """[N, O]."""
        return self._times(x_NI) if self._bias is None else self._times.added_to(self._bias, x_NI)

    def added_to(self, base_NO: torch.Tensor, x_NI: torch.Tensor, chosen: Chosen = None) -> torch.Tensor:
        """base + what x gives, [N, O]."""
        added = self._times.added_to(base_NO, x_NI)
        return added if self._bias is None else added.add_(self._bias)


def _joined(weights: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.cat(list(weights)) if len(weights) > 1 else weights[0]


def side_by_side(weights: Sequence[torch.Tensor]) -> torch.Tensor:
    """[O_i, I] each to [I, O].

    Each is written straight to its place: joined first and turned then, a layer would be held three times.
    """
    outputs = [weight.shape[0] for weight in weights]
    weight_IO = empty_weight((weights[0].shape[1], sum(outputs)), weights[0].dtype, weights[0].device)
    for part_IO, weight_OI in zip(weight_IO.split(outputs, 1), weights, strict=True):
        part_IO.copy_(weight_OI.t())
    return weight_IO
