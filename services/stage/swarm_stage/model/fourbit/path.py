"""How the 4-bit products of a device go: split by rows, in float32, or as they are. Measures nothing.

Shapes: N rows, I inputs, O outputs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import torch

from swarm_stage.model.fourbit.float32 import Float32Rows, choose_float32_rows
from swarm_stage.model.fourbit.rows import RowSplits, choose_row_splits
from swarm_stage.model.quantized.quantized_weight import QuantizedWeight


@dataclass(frozen=True)
class FourbitPath:
    """A call is split first; each part then is computed in float32 where its own row count is."""

    splits: RowSplits = field(default_factory=RowSplits)
    float32: Float32Rows = field(default_factory=Float32Rows)


def choose_path(
    own_ms: Mapping[int, float],
    float32_ms: Mapping[int, float],
    asked: RowSplits | None,
    free_bytes: int,
    buffer_bytes: int,
) -> FourbitPath:
    """The fastest way as measured, never one slower than the default by more than the measurement's noise.

    Times are by row count, of the same products; float32_ms is empty where float32 is not wanted. asked: the splits, if
    they are not to be chosen. What is split is weighed as each part would run, in float32 or not.
    """
    float32 = choose_float32_rows(own_ms, float32_ms, free_bytes, buffer_bytes)
    runs_ms = {
        rows: float32_ms[rows] if rows in float32_ms and float32.covers(rows) else own_ms[rows] for rows in own_ms
    }
    return FourbitPath(choose_row_splits(runs_ms) if asked is None else asked, float32)


class PathedWeight(QuantizedWeight):
    """A quantised weight whose products go a chosen way. Every row's result is the same either way, but for rounding:
    kernels of other row counts, and float32, round differently.
    """

    def __init__(self, held: QuantizedWeight, path: FourbitPath) -> None:
        self.shape = held.shape
        self._held, self._path = held, path

    def product(self, x_NI: torch.Tensor, bias_O: torch.Tensor | None = None) -> torch.Tensor:
        """x W^T + b, [N, O], in x's type."""
        parts = self._path.splits.parts(x_NI.shape[0])
        if len(parts) == 1:
            return self._in_its_type(x_NI, bias_O)
        return torch.cat([self._in_its_type(x_NI[start:stop], bias_O) for start, stop in parts])

    def joined(self, others: Sequence[Self]) -> None:
        """Nothing: paths are chosen for weights that are joined already."""
        return None

    def _in_its_type(self, x_NI: torch.Tensor, bias_O: torch.Tensor | None) -> torch.Tensor:
        if not self._path.float32.covers(x_NI.shape[0]):
            return self._held.product(x_NI, bias_O)
        bias: Any = None if bias_O is None else bias_O.float()
        return self._held.product(x_NI.float(), bias).to(x_NI.dtype)
