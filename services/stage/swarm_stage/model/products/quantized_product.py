"""Products of weights held in few bits. Knows no format.

Shapes: N rows, O outputs.
"""

from collections.abc import Sequence

import torch

from swarm_stage.model.adapters.choice import Chosen
from swarm_stage.model.quantized.quantized_weight import Change, QuantizedWeight


class QuantizedProduct:
    """Linear layers that share their input, as one product of quantised weights, or as few as their bytes allow."""

    def __init__(self, weights: Sequence[QuantizedWeight], biases: Sequence[torch.Tensor | None]) -> None:
        """biases: one a weight, all or none."""
        first, *others = weights
        joined = first.joined(others) if others else first
        self._weights = [joined] if joined is not None else list(weights)
        given = [bias for bias in biases if bias is not None]
        self._bias_O = torch.cat(given) if given else None

    def __call__(self, x_NI: torch.Tensor, chosen: Chosen = None) -> torch.Tensor:
        """[N, O]."""
        if len(self._weights) == 1:
            return self._weights[0].product(x_NI, self._bias_O)
        y_NO = torch.cat([weight.product(x_NI) for weight in self._weights], dim=-1)
        return y_NO if self._bias_O is None else y_NO.add_(self._bias_O)

    def added_to(self, base_NO: torch.Tensor, x_NI: torch.Tensor, chosen: Chosen = None) -> torch.Tensor:
        """base + what x gives, [N, O]."""
        return self(x_NI).add_(base_NO)

    def replace_quantized(self, change: Change) -> None:
        """Hold what `change` makes of each weight instead."""
        self._weights = [change(weight) for weight in self._weights]
