"""Weights in NF4 by bitsandbytes: 4 bits each and a scale a block. Reads no file, knows no module.

Shapes: N rows, I inputs, O outputs.
"""

from collections.abc import Sequence
from typing import Self

import numpy as np
import torch
from swarm_core.quantization import BLOCK

from swarm_stage.model.quantized.bitsandbytes_offline import bitsandbytes
from swarm_stage.model.quantized.quantized_weight import QuantizedWeight, chunk_elements
from swarm_stage.model.quantized.tiles import multiply_by_tiles, tile_rows
from swarm_stage.model.weight_memory import empty_weight

_TYPE = "nf4"
_LEVELS = bitsandbytes.functional.get_4bit_type(_TYPE, device="cpu").numpy()
# Half way between neighbouring levels. A number's code is how many of these it lies above: fifteen comparisons of whole
# rows, eight times as fast as looking each number up (bitsandbytes on a processor: 29 million numbers a second).
_BOUNDS = (_LEVELS[1:] + _LEVELS[:-1]) / np.float32(2)
_CACHED = 1 << 16  # numbers looked at fifteen times while a core's cache has them; whole blocks


class Nf4Weight(QuantizedWeight):
    """Two weights a byte, in the order of the matrix; absmax: a float32 for every block of 64, also across rows."""

    def __init__(self, packed: torch.Tensor, absmax: torch.Tensor, shape: tuple[int, int]) -> None:
        """packed: uint8, [ceil(O I / 2)]; absmax: [ceil(O I / 64)]."""
        self.packed, self.absmax, self.shape = packed, absmax, shape
        self._tile_rows = tile_rows(shape, BLOCK)

    def product(self, x_NI: torch.Tensor, bias_O: torch.Tensor | None = None) -> torch.Tensor:
        """On a card by bitsandbytes' kernel for the packed weight; elsewhere unpacked a tile at a time."""
        if x_NI.device.type != "cpu":
            return torch.ops.bitsandbytes.gemm_4bit.default(
                x_NI, self.packed[:, None], self.shape, self.absmax, BLOCK, _TYPE, bias=bias_O
            )
        y_NO = multiply_by_tiles(x_NI, self.shape[0], self._tile_rows, lambda *run: self.unpacked(*run, x_NI.dtype))
        return y_NO if bias_O is None else y_NO.add_(bias_O)

    def unpacked(self, start: int, stop: int, dtype: torch.dtype) -> torch.Tensor:
        """Outputs start to stop at full precision, [O, I]; start is that of a block."""
        inputs = self.shape[1]
        first, count = start * inputs, (stop - start) * inputs
        packed = self.packed[first // 2 : -(-(first + count) // 2)]
        absmax = self.absmax[first // BLOCK : -(-(first + count) // BLOCK)]
        # Rows of odd length would take bitsandbytes to code that it compiles when it is first called.
        shape = [stop - start, inputs] if inputs % 2 == 0 else [1, count + count % 2]
        full = torch.ops.bitsandbytes.dequantize_4bit.default(packed, absmax, BLOCK, _TYPE, shape, dtype)
        return full.view(-1)[:count].view(stop - start, inputs)

    def joined(self, others: Sequence[Self]) -> Self | None:
        """None when a weight ends within a block, which the next one cannot go on with."""
        parts = [self, *others]
        if any(part.shape[0] * part.shape[1] % BLOCK for part in parts[:-1]):
            return None
        device = self.packed.device
        packed = empty_weight((sum(len(part.packed) for part in parts),), torch.uint8, device)
        torch.cat([part.packed for part in parts], out=packed)
        shape = (sum(part.shape[0] for part in parts), self.shape[1])
        return type(self)(packed, torch.cat([part.absmax for part in parts]), shape)


def quantize_nf4(weight_OI: torch.Tensor, dtype: torch.dtype, device: torch.device) -> Nf4Weight:
    """Quantise what a load at `dtype` would hold, on `device`, bit for bit as a quantised from_pretrained does.

    weight_OI: as stored, finite; at no time is more than a chunk of it cast or moved. absmax is not finite where a
    number is too large for dtype.
    """
    stored, count = weight_OI.contiguous().view(-1), weight_OI.numel()
    packed = empty_weight((-(-count // 2),), torch.uint8, device)
    absmax = torch.empty(-(-count // BLOCK), dtype=torch.float32, device=device)
    step = chunk_elements(device)  # whole blocks
    for start in range(0, count, step):
        part = stored[start : start + step].to(device=device, dtype=dtype)
        codes, scales = _quantized(part)
        packed[start // 2 : start // 2 + len(codes)] = codes.view(-1)
        absmax[start // BLOCK : start // BLOCK + len(scales)] = scales
    return Nf4Weight(packed, absmax, (weight_OI.shape[0], weight_OI.shape[1]))


def _quantized(part: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Packed codes and scales of a run of numbers, by bitsandbytes, or on a processor by what gives the same bytes."""
    if part.device.type != "cpu" or part.numel() % BLOCK:
        return torch.ops.bitsandbytes.quantize_4bit.default(part, BLOCK, _TYPE, torch.uint8)
    full = part.float().numpy()
    packed = np.empty(len(full) // 2, dtype=np.uint8)
    scales = np.empty(len(full) // BLOCK, dtype=np.float32)
    for start in range(0, len(full), _CACHED):
        blocks = full[start : start + _CACHED].reshape(-1, BLOCK)
        largest = scales[start // BLOCK : start // BLOCK + len(blocks)]
        np.abs(blocks).max(axis=1, out=largest)
        # As bitsandbytes has it, to the last bit: times the reciprocal, a block of zeros too.
        scaled = (blocks * (np.float32(1) / np.maximum(largest, np.float32(1e-38)))[:, None]).reshape(-1)
        codes = (scaled > _BOUNDS[0]).view(np.uint8)
        for bound in _BOUNDS[1:]:
            codes += scaled > bound
        packed[start // 2 : start // 2 + len(codes) // 2] = codes[::2] << 4 | codes[1::2]
    return torch.from_numpy(packed), torch.from_numpy(scales)
