"""Hidden states as core.v1.CodedTensor: whole numbers and a scale a row. Checked before it allocates; numpy only.

A scale keeps 17 bits of its fraction, so that every product code x scale is exact in float32: the same bytes come out
on every machine, and coding what was decoded gives the same codes again.

Shapes: T rows (positions, of one session or of several), D hidden size.
"""

from collections.abc import Sequence

import numpy as np
from silentswarm.core.v1 import tensor_pb2
from swarm_core.errors import BadFrame, StageFailed
from swarm_core.servable_parts import CODECS

INT8, INT4 = CODECS
CODE_MOST = {INT8: 127, INT4: 7}  # largest code; the smallest is its negative
SCALE_MIN = 2.0**-100  # of a row of zeros too; far from where processors may flush to zero
SCALE_BITS_DROPPED = 7  # of the 24 of a float32, as many as the largest code has
SCALE_BYTES = 4
_HALF_DROPPED = np.uint32(1 << (SCALE_BITS_DROPPED - 1))
_KEPT = np.uint32(0xFFFFFFFF << SCALE_BITS_DROPPED & 0xFFFFFFFF)
_LOW_HALF = 0x0F
_NO_CODE_INT8 = b"\x80"  # -128
_NO_CODE_INT4 = 0x8  # -8
_FLOAT32_MAX = np.finfo(np.float32).max
_MAGNITUDE_MOST = np.float32(float(_FLOAT32_MAX) * (1 - 2.0**-16))  # of a row, whose scale may be rounded up


def _largest_scale(most: int) -> np.float32:
    """The largest whose product with the largest code is a float32."""
    scale = _FLOAT32_MAX / np.float32(most)
    return scale if float(scale) * most <= float(_FLOAT32_MAX) else np.nextafter(scale, np.float32(0))


_SCALE_MOST = {codec: _largest_scale(most) for codec, most in CODE_MOST.items()}


def encode(codec: str, hidden_TD: np.ndarray) -> tensor_pb2.CodedTensor:
    """Code rows of float32. codec: one of CODECS.

    An element is off by half its row's scale at most, and the scale is the row's largest magnitude over 127 (int8) or
    7 (int4), to 17 bits. Raises StageFailed for a row with a NaN, an infinity, or a magnitude a scale cannot express.
    """
    codes, scales_T, bad_rows = _code(codec, hidden_TD)
    if len(bad_rows):
        raise _not_numbers(codec, int(bad_rows[0]))
    shape = list(hidden_TD.shape)
    return tensor_pb2.CodedTensor(codec=codec, shape=shape, codes=codes.tobytes(), scales=scales_T.tobytes())


def encode_rows(codec: str, hidden_TD: np.ndarray) -> list[tensor_pb2.CodedTensor | StageFailed]:
    """One tensor a row, as encode gives of each alone; in place of a row that cannot be coded, the reason."""
    codes, scales_T, bad_rows = _code(codec, hidden_TD)
    shape = [1, hidden_TD.shape[1]]
    # Sliced as bytes: a row of an array takes longer to cut out than to code.
    all_codes, all_scales, wide = codes.tobytes(), scales_T.tobytes(), codes.shape[1]
    coded: list[tensor_pb2.CodedTensor | StageFailed] = [
        tensor_pb2.CodedTensor(
            codec=codec,
            shape=shape,
            codes=all_codes[row * wide : (row + 1) * wide],
            scales=all_scales[row * SCALE_BYTES : (row + 1) * SCALE_BYTES],
        )
        for row in range(len(scales_T))
    ]
    for row in bad_rows:
        coded[row] = _not_numbers(codec, int(row))
    return coded


def decode(coded: tensor_pb2.CodedTensor) -> np.ndarray:
    """hidden_TD as float32, of its own memory. Only for what check_coded let through."""
    return _decode(coded.codec, coded.codes, coded.scales, coded.shape[1])


def decode_rows(coded: Sequence[tensor_pb2.CodedTensor]) -> np.ndarray:
    """hidden_TD of several tensors of one codec and width, one below the other; likewise."""
    codes, scales = b"".join(part.codes for part in coded), b"".join(part.scales for part in coded)
    return _decode(coded[0].codec, codes, scales, coded[0].shape[1])


def check_coded(coded: tensor_pb2.CodedTensor, codec: str, width: int) -> int:
    """Check a hidden state that came over a link coded so, of a model so wide; returns its rows.

    Header and lengths come first, so a lie costs nothing. Raises BadFrame with the numbers.
    """
    if codec not in CODECS or coded.codec != codec:
        raise BadFrame(f"hidden state coded as {coded.codec[:40]!r}; this link sends {codec or 'none'}", codec=codec)
    shape = coded.shape
    if len(shape) != 2 or min(shape) < 1:
        raise BadFrame(f"coded hidden state of shape {list(shape[:4])}; expected [positions, {width}]")
    if shape[1] != width:
        raise BadFrame(f"coded hidden state {shape[1]} wide; this model is {width} wide", width=shape[1])
    rows = shape[0]
    codes_bytes, scales_bytes = rows * row_bytes(codec, width), rows * SCALE_BYTES
    if len(coded.codes) != codes_bytes or len(coded.scales) != scales_bytes:
        said, brought = f"{codes_bytes} + {scales_bytes}", f"{len(coded.codes)} + {len(coded.scales)}"
        raise BadFrame(f"coded hidden state says {said} bytes and brings {brought}", said=codes_bytes + scales_bytes)
    _check_scales(codec, coded.scales)
    if not _are_codes(codec, coded.codes, width):
        raise BadFrame(f"coded hidden state holds what is no code of {codec}", codec=codec)
    return rows


def row_bytes(codec: str, width: int) -> int:
    """Bytes of the codes of one row."""
    return width if codec == INT8 else (width + 1) // 2


def _code(codec: str, hidden_TD: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Codes [T, bytes] and scales_T as they travel, and the rows that cannot be coded, whose codes are 0."""
    hidden_TD = np.asarray(hidden_TD, dtype=np.float32)
    most_T = np.maximum(hidden_TD.max(axis=1), -hidden_TD.min(axis=1))  # NaN where a row has one
    scales_T = _scales(most_T, CODE_MOST[codec])
    bad_rows = np.flatnonzero(~(most_T <= _MAGNITUDE_MOST))  # a NaN is no smaller
    if len(bad_rows):
        hidden_TD = hidden_TD.copy()
        hidden_TD[bad_rows], scales_T[bad_rows] = 0.0, SCALE_MIN
    scaled_TD = hidden_TD / scales_T[:, None]
    codes_TD = np.rint(scaled_TD, out=scaled_TD).astype(np.int8)
    return (codes_TD if codec == INT8 else _packed(codes_TD)), scales_T.astype("<f4", copy=False), bad_rows


def _scales(most_T: np.ndarray, most: int) -> np.ndarray:
    scales_T = most_T / np.float32(most)
    np.maximum(scales_T, np.float32(SCALE_MIN), out=scales_T)
    bits_T = scales_T.view(np.uint32)
    bits_T += _HALF_DROPPED
    bits_T &= _KEPT
    return scales_T


def _packed(codes_TD: np.ndarray) -> np.ndarray:
    """Two codes a byte, the earlier one in the low half."""
    if codes_TD.shape[1] % 2:
        codes_TD = np.pad(codes_TD, ((0, 0), (0, 1)))
    pairs = codes_TD.view("<u2")
    return (pairs & 0x000F | pairs >> 4 & 0x00F0).astype(np.uint8)


def _pair_table() -> np.ndarray:
    """Both codes of every byte, as two float32 in one element."""
    halves = np.arange(256)[:, None] >> np.array([0, 4]) & _LOW_HALF
    return np.where(halves < _NO_CODE_INT4, halves, halves - 16).astype(np.float32).view(np.complex64)[:, 0]


_PAIRS = _pair_table()


def _decode(codec: str, codes: bytes, scales: bytes, width: int) -> np.ndarray:
    scales_T1 = np.frombuffer(scales, dtype="<f4")[:, None]
    if codec == INT8:
        codes_TD = np.frombuffer(codes, dtype=np.int8).reshape(len(scales_T1), width)
        return np.multiply(codes_TD, scales_T1, dtype=np.float32)
    packed = np.frombuffer(codes, dtype=np.uint8).reshape(len(scales_T1), -1)
    return _PAIRS[packed].view(np.float32)[:, :width] * scales_T1


def _check_scales(codec: str, scales: bytes) -> None:
    scales_T = np.frombuffer(scales, dtype="<f4")
    is_scale_T = (scales_T >= 0) & (scales_T <= _SCALE_MOST[codec])  # both false for NaN
    if not is_scale_T.all():
        row = int(np.flatnonzero(~is_scale_T)[0])
        raise BadFrame(f"row {row} of a coded hidden state has the scale {float(scales_T[row])}", row=row)


def _are_codes(codec: str, codes: bytes, width: int) -> bool:
    """Whether no code is below the smallest there is, and rows of odd width end with an empty half."""
    if codec == INT8:
        return _NO_CODE_INT8 not in codes
    packed = np.frombuffer(codes, dtype=np.uint8)
    if width % 2 and (packed.reshape(-1, row_bytes(codec, width))[:, -1] > _LOW_HALF).any():
        return False
    return not _HAS_NO_CODE[packed].any()


_HAS_NO_CODE = (np.arange(256) & _LOW_HALF == _NO_CODE_INT4) | (np.arange(256) >> 4 == _NO_CODE_INT4)


def _not_numbers(codec: str, row: int) -> StageFailed:
    return StageFailed(f"a hidden state (row {row}) is not finite, or too large, and cannot be coded as {codec}")
