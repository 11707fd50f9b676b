"""Tensor headers checked against their bytes before anything is allocated. Knows no framework."""

from collections.abc import Sequence

from swarm_core.errors import BadFrame
from swarm_core.manifest import DTYPE_BYTES

WIRE_DTYPES = ("F32", "F16", "BF16")
RANK_MAX = 4


def check_tensor(dtype: str, shape: Sequence[int], data_bytes: int, expected_dtype: str, hidden_size: int) -> int:
    """Check a hidden state's header [positions, hidden_size] against its length; returns the positions.

    Works on numbers alone, so a lying header costs nothing. Raises BadFrame with the numbers.
    """
    if dtype not in WIRE_DTYPES or dtype != expected_dtype:
        raise BadFrame(f"hidden state of dtype {dtype!r}; this ring sends {expected_dtype}", dtype=dtype)
    if len(shape) != 2 or any(extent < 1 for extent in shape):
        raise BadFrame(f"hidden state of shape {list(shape)[:RANK_MAX]}; expected [positions, {hidden_size}]")
    positions, width = shape
    if width != hidden_size:
        raise BadFrame(f"hidden state {width} wide; this model is {hidden_size} wide", width=width)
    expected_bytes = positions * width * DTYPE_BYTES[dtype]
    if expected_bytes != data_bytes:
        raise BadFrame(f"hidden state says {expected_bytes} bytes and brings {data_bytes}", said=expected_bytes)
    return positions
