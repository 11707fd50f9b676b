"""Matrix products of few rows, as fast as one processor core reads weights. Knows no layer and no session.

Shapes: N rows, I inputs, O outputs.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F

from swarm_stage.model.weight_memory import empty_weight

HEAD_CHUNK = 1024  # outputs a product: one of 49,152 x 576 takes 27 ms for 8 rows, 48 of 1,024 x 576 take 19 ms


class Product:
    """Linear layers that share their input, as one: x -> x W^T + b. Holds one copy of the weights, as it wants them.

    A row times a matrix is bound by how fast weights come from memory. With outputs side by side ([I, O]) they come at
    17 GB/s, one output after the other ([O, I]) at 10 GB/s, unless there are more inputs than outputs; from 4 rows on
    both are alike (docs/measurements/2026-11-many-requests.md).
    """

    def __init__(self, weights: Sequence[torch.Tensor], bias: torch.Tensor | None) -> None:
        """weights: [O_i, I] each, as checkpoints have them."""
        outputs, inputs = sum(weight.shape[0] for weight in weights), weights[0].shape[1]
        self._weight_IO = _side_by_side(weights) if outputs >= inputs else _joined(weights).t()
        self._bias = bias

    def __call__(self, x_NI: torch.Tensor) -> torch.Tensor:
        """[N, O]."""
        if self._bias is None:
            return torch.mm(x_NI, self._weight_IO)
        return torch.addmm(self._bias, x_NI, self._weight_IO)

    def added_to(self, base_NO: torch.Tensor, x_NI: torch.Tensor) -> torch.Tensor:
        """base + what x gives, [N, O]."""
        added = torch.addmm(base_NO, x_NI, self._weight_IO)
        return added if self._bias is None else added.add_(self._bias)


def _joined(weights: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.cat(list(weights)) if len(weights) > 1 else weights[0]


def _side_by_side(weights: Sequence[torch.Tensor]) -> torch.Tensor:
    """[I, O], each written straight to its place: joined first and turned then, a layer would be held three times."""
    outputs = [weight.shape[0] for weight in weights]
    weight_IO = empty_weight((weights[0].shape[1], sum(outputs)), weights[0].dtype, weights[0].device)
    for part_IO, weight_OI in zip(weight_IO.split(outputs, 1), weights, strict=True):
        part_IO.copy_(weight_OI.t())
    return weight_IO


def head_logits(hidden_ND: torch.Tensor, weight_VD: torch.Tensor) -> torch.Tensor:
    """logits_NV over a vocabulary. weight_VD stays as checkpoints have it: the embedding reads rows of the same one."""
    if hidden_ND.shape[0] == 1:
        return F.linear(hidden_ND, weight_VD)
    logits_NV = hidden_ND.new_empty(hidden_ND.shape[0], weight_VD.shape[0])
    for part_NC, chunk_CD in zip(logits_NV.split(HEAD_CHUNK, 1), weight_VD.split(HEAD_CHUNK), strict=True):
        part_NC.copy_(F.linear(hidden_ND, chunk_CD))
    return logits_NV
