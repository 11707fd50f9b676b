"""Products with weights that are unpacked a tile at a time, into memory the processor still holds. Knows no format."""

import math
from collections.abc import Callable

import torch

# 4 MiB of float32. A whole matrix unpacked goes out to memory and comes back (8 Mi weights: 34 ms against 6), a smaller
# tile pays more calls than it saves (docs/measurements/2026-11-quantised.md).
TILE_ELEMENTS = 2**20


def tile_rows(shape: tuple[int, int], block: int = 1) -> int:
    """Outputs a tile, so that every tile begins with a block of weights."""
    outputs, inputs = shape
    step = block // math.gcd(inputs, block)
    return min(outputs, max(1, TILE_ELEMENTS // inputs // step) * step)


def multiply_by_tiles(
    x_NI: torch.Tensor, outputs: int, rows: int, unpack: Callable[[int, int], torch.Tensor]
) -> torch.Tensor:
    """x W^T, [N, O], of a weight that `unpack` gives by its outputs from start to stop."""
    if rows >= outputs:
        return torch.mm(x_NI, unpack(0, outputs).t())
    y_NO = x_NI.new_empty(x_NI.shape[0], outputs)
    for start in range(0, outputs, rows):
        stop = min(start + rows, outputs)
        torch.mm(x_NI, unpack(start, stop).t(), out=y_NO[:, start:stop])
    return y_NO
