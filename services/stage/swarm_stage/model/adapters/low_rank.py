"""What an adapter adds to linear layers that share their input, added in place. Knows no layer and no session.

Shapes: N rows, I inputs, R ranks of all layers, O outputs of all layers.
"""

from collections.abc import Sequence

import torch


class LowRankSum:
    """y += scale B A x of one or several layers side by side: one product for every A, one for each B.

    The scale is in B already. In `dtype`, whatever y is: what is added is rounded once.
    """

    def __init__(self, parts: Sequence[tuple[int, torch.Tensor, torch.Tensor]], dtype: torch.dtype) -> None:
        """parts: of each layer that is changed: its first output, a_RI, and b_RO with the scale in it."""
        self._dtype = dtype
        a_parts = [a_RI for _, a_RI, _ in parts]
        self._a_IR = (torch.cat(a_parts) if len(a_parts) > 1 else a_parts[0]).t()
        self._outputs: list[tuple[int, int, int, int, torch.Tensor]] = []
        rank_start = 0
        for output_start, a_RI, b_RO in parts:
            rank_stop, output_stop = rank_start + a_RI.shape[0], output_start + b_RO.shape[1]
            self._outputs.append((rank_start, rank_stop, output_start, output_stop, b_RO))
            rank_start = rank_stop

    def add_to(self, y_NO: torch.Tensor, x_NI: torch.Tensor) -> None:
        """y is changed in place."""
        low_NR = torch.mm(x_NI if x_NI.dtype is self._dtype else x_NI.to(self._dtype), self._a_IR)
        for rank_start, rank_stop, output_start, output_stop, b_RO in self._outputs:
            part_NO, part_NR = y_NO[:, output_start:output_stop], low_NR[:, rank_start:rank_stop]
            if y_NO.dtype is self._dtype:
                part_NO.addmm_(part_NR, b_RO)
            else:
                part_NO.copy_(torch.addmm(part_NO.to(self._dtype), part_NR, b_RO))
