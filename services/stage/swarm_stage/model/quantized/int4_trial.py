"""Whether int4-fast runs here: by its kernels' own rules, and by a product on each device. Holds no weights."""

from collections.abc import Sequence

import torch
from swarm_core.quantization import int4_group

from swarm_stage.model.quantized.quantize import LinearPlace

_OUTPUTS, _INPUTS, _ROWS = 64, 256, 3  # of the product tried
_ERROR_MAX = 0.02  # of the largest number of a product in bfloat16; 0.003 is usual
_OUTPUTS_A_TILE = 16  # a weight's outputs are packed so many at a time


def why_not_int4(linears: Sequence[LinearPlace]) -> str | None:
    """Why these layers cannot be held in int4-fast on their devices; None when they can.

    Any of them that cannot decides for all: a stage is held one way.
    """
    for linear in linears:
        if not int4_group(linear.inputs) or linear.outputs % _OUTPUTS_A_TILE:
            return (
                f"a layer of {linear.outputs} outputs and {linear.inputs} inputs; its kernels take outputs "
                f"by {_OUTPUTS_A_TILE} and inputs by 32"
            )
    for device in dict.fromkeys(linear.device for linear in linears):
        why_not = _try_on(device)
        if why_not is not None:
            return f"{device}: {why_not}"
    return None


def _try_on(device: torch.device) -> str | None:
    """A product of known numbers on the device against the same at full precision."""
    try:
        from swarm_stage.model.quantized.int4 import quantize_int4, unpacked_int4

        draw = torch.Generator().manual_seed(0)
        weight_OI = torch.randn(_OUTPUTS, _INPUTS, generator=draw)
        x_NI = torch.randn(_ROWS, _INPUTS, generator=draw).to(torch.bfloat16)
        got_NO = quantize_int4(weight_OI, device).product(x_NI.to(device)).float().cpu()
        want_NO = x_NI.float() @ unpacked_int4(weight_OI).t()
    except Exception as error:  # whatever a library or a driver raises where it cannot run
        return f"{type(error).__name__}: {str(error).splitlines()[0][:200] if str(error) else ''}"
    error_part = float((got_NO - want_NO).abs().max() / want_NO.abs().max())
    return None if error_part <= _ERROR_MAX else f"its product is wrong by {error_part:.1%}"
