"""Weights in 4 bits by torchao's int4 weight-only scheme, multiplied packed by torch's kernels. Reads no file.

A group of inputs shares a scale and a zero point, both bfloat16, which is also what is multiplied in.
Shapes: N rows, I inputs, O outputs, G groups.
"""

from collections.abc import Sequence
from typing import Self

import torch
from swarm_core.quantization import int4_group
from torch import nn
from torchao.quantization.utils import groupwise_affine_dequantize_tensor, groupwise_affine_quantize_tensor

from swarm_stage.model.quantized.quantized_weight import QuantizedWeight, chunk_elements

DTYPE = torch.bfloat16
_TILE_OUTPUTS = 64  # kernels pack at most so many outputs together; whole tiles can follow each other
_TILE_INPUTS = 16  # of a tensor core's tile; a card's kernel packs 2, 4 or 8 of them together


class Int4Weight(QuantizedWeight):
    """packed: as the device's kernel wants it. scales_and_zeros_GO2: bfloat16."""

    def __init__(self, packed: torch.Tensor, scales_and_zeros_GO2: torch.Tensor, shape: tuple[int, int]) -> None:
        self.packed, self.scales_and_zeros, self.shape = packed, scales_and_zeros_GO2, shape
        self._group = shape[1] // scales_and_zeros_GO2.shape[0]
        is_cpu = packed.device.type == "cpu"
        self._multiply = torch.ops.aten._weight_int4pack_mm_for_cpu if is_cpu else torch.ops.aten._weight_int4pack_mm

    def product(self, x_NI: torch.Tensor, bias_O: torch.Tensor | None = None) -> torch.Tensor:
        """In bfloat16, whatever x is. A row's bits do not depend on the rows beside it."""
        y_NO = self._multiply(x_NI.to(DTYPE).contiguous(), self.packed, self._group, self.scales_and_zeros)
        y_NO = y_NO.to(x_NI.dtype)
        return y_NO if bias_O is None else y_NO.add_(bias_O)

    def joined(self, others: Sequence[Self]) -> Self | None:
        """None when a weight ends within a tile."""
        parts = [self, *others]
        if any(part.shape[0] % _TILE_OUTPUTS for part in parts[:-1]):
            return None
        return type(self)(
            torch.cat([part.packed for part in parts]),
            torch.cat([part.scales_and_zeros for part in parts], dim=1).contiguous(),
            (sum(part.shape[0] for part in parts), self.shape[1]),
        )


class Int4Linear(nn.Linear):
    """A linear layer held in int4."""

    def __init__(self, linear: nn.Linear, held: Int4Weight) -> None:
        """linear: what it stands for; its weight is not looked at, its bias is taken over."""
        super().__init__(linear.in_features, linear.out_features, False, device=torch.device("meta"))
        self.held = held
        self.weight = nn.Parameter(held.packed, requires_grad=False)
        self.scales = nn.Parameter(held.scales_and_zeros, requires_grad=False)
        self.bias = linear.bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """As nn.Linear."""
        return self.held.product(x.reshape(-1, x.shape[-1]), self.bias).view(*x.shape[:-1], -1)


def quantize_int4(weight_OI: torch.Tensor, device: torch.device) -> Int4Weight:
    """Quantise on the device the weight goes to. weight_OI: as stored, finite, of a shape why_not_int4 has accepted.

    No more than a chunk of it is ever on the device at full precision. A scale is not finite where a number is too
    large for bfloat16.
    """
    outputs, inputs = weight_OI.shape
    group = int4_group(inputs)
    assert group, (outputs, inputs)
    packed, scales = [], []
    step = max(1, chunk_elements(device) // inputs // _TILE_OUTPUTS) * _TILE_OUTPUTS
    for start in range(0, outputs, step):
        part_OI = weight_OI[start : start + step].to(device=device, dtype=DTYPE)
        codes, scales_and_zeros_GO2 = groupwise_affine_quantize_tensor(part_OI, 4, group, DTYPE)
        packed.append(_packed(codes, inputs))
        scales.append(scales_and_zeros_GO2)
    return Int4Weight(torch.cat(packed), torch.cat(scales, dim=1).contiguous(), (outputs, inputs))


def unpacked_int4(weight_OI: torch.Tensor) -> torch.Tensor:
    """What a weight is once quantised, at full precision: for checking products."""
    group = int4_group(weight_OI.shape[1])
    codes, scales_and_zeros = groupwise_affine_quantize_tensor(weight_OI.to(DTYPE), 4, group, DTYPE)
    return groupwise_affine_dequantize_tensor(codes, scales_and_zeros, 4, group).float()


def _packed(codes: torch.Tensor, inputs: int) -> torch.Tensor:
    """Codes as the device's kernel reads them. torchao gives one a number on a processor, two a byte on a card."""
    if codes.device.type == "cpu":
        return torch.ops.aten._convert_weight_to_int4pack_for_cpu(codes, 1)
    tiles = next(count for count in (8, 4, 2) if inputs % (count * _TILE_INPUTS) == 0)
    return torch.ops.aten._convert_weight_to_int4pack(codes.contiguous(), tiles)
