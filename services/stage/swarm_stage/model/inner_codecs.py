"""Boundaries of training inside a slice: what crosses them is coded and decoded in place, as a link would. No wire.

Shapes: N rows, D hidden size, with any dimensions in front.
"""

from collections.abc import Mapping
from typing import Any

import torch
from swarm_core.slices import LayerRange
from swarm_wire.codecs import CODE_MOST, SCALE_BITS_DROPPED, SCALE_MIN

BEHIND = "boundary_behind"  # attribute of a decoder layer whose output crosses a boundary
_HALF_DROPPED, _KEPT = 1 << (SCALE_BITS_DROPPED - 1), -1 << SCALE_BITS_DROPPED


class InnerBoundary:
    """hidden -> what a coded link would have brought of it, in the same type and on the same device.

    Bit for bit swarm_wire.codecs' decode(encode(hidden)). A row that is not finite comes out as NaN: its session fails
    where its token is drawn, or at the next coded link.
    """

    def __init__(self, codec: str) -> None:
        self._most = CODE_MOST[codec]

    def __call__(self, hidden_ND: torch.Tensor) -> torch.Tensor:
        exact_ND = hidden_ND.float()
        # Divided by a tensor: torch multiplies by the reciprocal of a plain number on some devices, which rounds twice.
        most = torch.full((), self._most, dtype=torch.float32, device=exact_ND.device)
        scales_N1 = exact_ND.abs().amax(dim=-1, keepdim=True).div_(most).clamp_(min=SCALE_MIN)
        bits_N1 = scales_N1.view(torch.int32)
        bits_N1.add_(_HALF_DROPPED).bitwise_and_(_KEPT)
        codes_ND = (exact_ND / scales_N1).round_().add_(0.0)  # no whole number is a negative zero
        return codes_ND.mul_(scales_N1).to(hidden_ND.dtype)


def put_inner_codecs(decoder_layers: Any, layers: LayerRange, inner_codecs: Mapping[int, str]) -> None:
    """Put a boundary in front of each layer named; transformers' own forward and lean layers both obey it.

    decoder_layers: the slice's modules, not yet given up to lean layers. inner_codecs: layer of the model -> codec,
    each behind the slice's first layer.
    """
    for layer, codec in inner_codecs.items():
        assert layers.layer_start < layer < layers.layer_stop, (layer, layers)
        before = decoder_layers[layer - 1 - layers.layer_start]
        boundary = InnerBoundary(codec)
        setattr(before, BEHIND, boundary)
        before.register_forward_hook(lambda module, args, hidden_BTD, boundary=boundary: boundary(hidden_BTD))
