"""Weights in int8 by bitsandbytes (LLM.int8): a byte each and a scale an output. Reads no file, knows no module.

Shapes: N rows, I inputs, O outputs, C columns of outliers. arXiv 2208.07339.
"""

from collections.abc import Sequence
from typing import Self

import torch

from swarm_stage.model.quantized.bitsandbytes_offline import bitsandbytes  # noqa: F401 - registers torch.ops.bitsandbytes
from swarm_stage.model.quantized.quantized_weight import QuantizedWeight, chunk_elements
from swarm_stage.model.quantized.tiles import multiply_by_tiles, tile_rows
from swarm_stage.model.weight_memory import empty_weight

THRESHOLD = 6.0  # inputs this large are multiplied at full precision, as BitsAndBytesConfig(load_in_8bit=True) has it
ROWS_ALONE_MAX = 16  # rows whose outliers are multiplied one by one: batches of sessions; more are a prompt
_PER_CODE = 7.874015718698502e-3  # 1 / 127, in bitsandbytes' spelling
_PER_PRODUCT = 6.200124e-05  # 1 / 127^2, likewise


class Int8Weight(QuantizedWeight):
    """codes_OI: int8. scales_O: float32, the largest of each output."""

    def __init__(self, codes_OI: torch.Tensor, scales_O: torch.Tensor) -> None:
        self.codes_OI, self.scales_O = codes_OI, scales_O
        self.shape = (codes_OI.shape[0], codes_OI.shape[1])
        self._tile_rows = tile_rows(self.shape)

    def product(self, x_NI: torch.Tensor, bias_O: torch.Tensor | None = None) -> torch.Tensor:
        """Each row as bitsandbytes computes it alone.

        bitsandbytes takes a column to full precision for all rows when it is an outlier in one, so that a reply would
        hang on who is in its batch and on how its prompt was cut. Here every row has its own outliers.
        """
        rows_NI = x_NI.to(torch.float16, copy=True)
        is_outlier_NI = rows_NI.abs() >= THRESHOLD
        has_outliers = bool(is_outlier_NI.any())
        if has_outliers:
            rows_NI.masked_fill_(is_outlier_NI, 0)
        codes_NI, scales_N, _ = torch.ops.bitsandbytes.int8_vectorwise_quant.default(rows_NI)
        y_NO = self._scaled(codes_NI, scales_N, bias_O, x_NI.dtype)
        if has_outliers:
            self._add_outliers(y_NO, x_NI, is_outlier_NI)
        return y_NO

    def _add_outliers(self, y_NO: torch.Tensor, x_NI: torch.Tensor, is_outlier_NI: torch.Tensor) -> None:
        """Add what outliers give at full precision.

        Sums of codes are exact, so that rows of a batch come out bit for bit as alone; here each of a few rows is
        multiplied alone to keep it so. A difference in the last place, rounded to codes by the next layer, is none in
        the last place any more.
        """
        if x_NI.shape[0] <= ROWS_ALONE_MAX:
            for y_O, x_I, is_outlier_I in zip(y_NO, x_NI, is_outlier_NI, strict=True):
                columns_C = is_outlier_I.nonzero().view(-1)
                y_O.addmv_(self._columns(columns_C, x_NI.dtype), x_I[columns_C])
            return
        columns_C = is_outlier_NI.any(dim=0).nonzero().view(-1)
        outliers_NC = torch.where(is_outlier_NI, x_NI, 0)[:, columns_C]
        y_NO.addmm_(outliers_NC, self._columns(columns_C, x_NI.dtype).t())

    def _scaled(
        self, codes_NI: torch.Tensor, scales_N: torch.Tensor, bias_O: torch.Tensor | None, dtype: torch.dtype
    ) -> torch.Tensor:
        """Codes times codes, scaled: on a card by its int8 kernel, elsewhere in float32, where the sums are exact."""
        if codes_NI.device.type != "cpu":
            return torch.ops.bitsandbytes.int8_scaled_mm.default(
                codes_NI, self.codes_OI, scales_N, self.scales_O, bias=bias_O, dtype=dtype
            )
        y_NO = multiply_by_tiles(
            codes_NI.float(), self.shape[0], self._tile_rows, lambda start, stop: self.codes_OI[start:stop].float()
        )
        y_NO.mul_(scales_N[:, None] * self.scales_O).mul_(_PER_PRODUCT)
        return (y_NO if bias_O is None else y_NO.add_(bias_O)).to(dtype)

    def _columns(self, columns_C: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """These columns at full precision, [O, C]."""
        return (self.codes_OI[:, columns_C] * self.scales_O[:, None] * _PER_CODE).to(dtype)

    def joined(self, others: Sequence[Self]) -> Self:
        parts = [self, *others]
        shape = (sum(part.shape[0] for part in parts), self.shape[1])
        codes_OI = empty_weight(shape, torch.int8, self.codes_OI.device)
        torch.cat([part.codes_OI for part in parts], out=codes_OI)
        return type(self)(codes_OI, torch.cat([part.scales_O for part in parts]))


def quantize_int8(weight_OI: torch.Tensor, dtype: torch.dtype, device: torch.device) -> Int8Weight:
    """Quantise what a load at `dtype` would hold, on `device`, bit for bit as a quantised from_pretrained does.

    weight_OI: as stored, finite; at no time is more than a chunk of it cast or moved. A scale is not finite where a
    number is too large for dtype, or for the float16 that bitsandbytes quantises from.
    """
    outputs, inputs = weight_OI.shape
    codes_OI = empty_weight((outputs, inputs), torch.int8, device)
    scales_O = torch.empty(outputs, dtype=torch.float32, device=device)
    step = max(1, chunk_elements(device) // inputs)
    for start in range(0, outputs, step):
        part_OI = weight_OI[start : start + step].to(device=device, dtype=dtype).to(torch.float16).contiguous()
        codes, scales, _ = torch.ops.bitsandbytes.int8_vectorwise_quant.default(part_OI)
        codes_OI[start : start + step], scales_O[start : start + step] = codes, scales
    return Int8Weight(codes_OI, scales_O)
