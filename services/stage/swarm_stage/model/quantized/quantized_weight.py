"""Weights held in few bits, as products see them. Knows no format; imports none of their libraries.

Shapes: N rows, I inputs, O outputs.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Self

import torch
from torch import nn


def chunk_elements(device: torch.device) -> int:
    """Weights to quantise at once.

    The libraries need some 20 bytes for each, so a whole matrix would take several times what it is read into. Rows and
    blocks are quantised independently of each other, and the bytes come out the same.
    """
    return 2**18 if device.type == "cpu" else 2**24  # a card has the room, and wants fewer and larger calls


class QuantizedWeight(ABC):
    """The weight of one linear layer, or of several that share their input, outputs side by side."""

    shape: tuple[int, int]

    @abstractmethod
    def product(self, x_NI: torch.Tensor, bias_O: torch.Tensor | None = None) -> torch.Tensor:
        """x W^T + b, [N, O], in x's type. A row's numbers do not depend on the rows beside it, but for rounding."""

    @abstractmethod
    def joined(self, others: Sequence[Self]) -> Self | None:
        """This and the others as one weight of the very same bytes; None where the format cannot."""


# A weight -> what is held in its place; the same numbers.
Change = Callable[[QuantizedWeight], QuantizedWeight]


def replace_held(module: nn.Module, change: Change) -> None:
    """Let every quantised linear layer within a module hold what `change` makes of its weight."""
    for part in module.modules():
        held = quantized_weight_of(part)
        if held is not None:
            part.held = change(held)


def quantized_weight_of(linear: Any) -> QuantizedWeight | None:
    """What a quantised linear layer holds; None for every other module."""
    held = getattr(linear, "held", None)
    return held if isinstance(held, QuantizedWeight) else None
