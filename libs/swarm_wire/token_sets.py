"""Sets of token ids as core.v1.TokenSet, checked before anything is allocated. numpy only."""

from collections.abc import Sequence

import numpy as np
from silentswarm.core.v1 import token_set_pb2
from swarm_core.errors import BadFrame

_ID_LIMITS = (1 << 7, 1 << 14, 1 << 21, 1 << 28)  # ids from the n-th on take n + 2 bytes


def token_set(allowed_V: np.ndarray) -> token_set_pb2.TokenSet:
    """The shortest form of what `allowed_V` says of each id."""
    allowed_V = np.asarray(allowed_V, dtype=bool)
    size, count = len(allowed_V), int(np.count_nonzero(allowed_V))
    is_inverted = count > size - count
    bits_bytes = _field_bytes((size + 7) // 8)
    if min(count, size - count) <= bits_bytes:  # an id takes a byte at least
        ids = np.flatnonzero(~allowed_V if is_inverted else allowed_V)
        if _list_bytes(ids) <= bits_bytes:
            listed = token_set_pb2.TokenSet.IdList(ids=ids.tolist())
            return token_set_pb2.TokenSet(**{"all_but" if is_inverted else "only": listed})
    return token_set_pb2.TokenSet(bits=np.packbits(allowed_V, bitorder="little").tobytes())


def mask_of(allowed: token_set_pb2.TokenSet, vocabulary_size: int) -> np.ndarray:
    """allowed_V, one bool an id, of its own memory.

    Raises BadFrame, before it allocates more than came, for a set of no form, a wrong length, or ids beyond the
    vocabulary, out of order or twice.
    """
    form = allowed.WhichOneof("form")
    if form is None:
        raise BadFrame("a set of tokens says neither which are in it nor which are not")
    if form == "bits":
        bits = allowed.bits
        _check_bits(bits, vocabulary_size)
        packed = np.frombuffer(bits, dtype=np.uint8)
        return np.unpackbits(packed, count=vocabulary_size, bitorder="little").view(bool)
    ids = _read_ids(allowed.only.ids if form == "only" else allowed.all_but.ids, vocabulary_size)
    allowed_V = np.full(vocabulary_size, form == "all_but")
    allowed_V[ids] = form == "only"
    return allowed_V


def _read_ids(ids: Sequence[int], vocabulary_size: int) -> np.ndarray:
    if len(ids) > vocabulary_size:
        raise BadFrame(f"a set of {len(ids)} tokens of a vocabulary of {vocabulary_size}", ids=len(ids))
    read = np.fromiter(ids, dtype=np.int64, count=len(ids))
    if not (read[1:] > read[:-1]).all():
        raise BadFrame("a set of tokens does not ascend")
    if len(read) and read[-1] >= vocabulary_size:
        raise BadFrame(f"a set of tokens has {read[-1]}, beyond a vocabulary of {vocabulary_size}", token=read[-1])
    return read


def _check_bits(bits: bytes, vocabulary_size: int) -> None:
    expected_bytes = (vocabulary_size + 7) // 8
    if len(bits) != expected_bytes:
        raise BadFrame(f"a set of tokens of {len(bits)} bytes; this vocabulary takes {expected_bytes}", said=len(bits))
    spare = expected_bytes * 8 - vocabulary_size
    if spare and bits[-1] >> (8 - spare):
        raise BadFrame(f"a set of tokens has some beyond a vocabulary of {vocabulary_size}")


def _list_bytes(ids: np.ndarray) -> int:
    """Bytes of a set that lists `ids`, which ascend: its form, its length and the packed ids."""
    packed_bytes = len(ids) * (len(_ID_LIMITS) + 1) - int(sum(np.searchsorted(ids, limit) for limit in _ID_LIMITS))
    list_bytes = _field_bytes(packed_bytes) if packed_bytes else 0
    return _field_bytes(list_bytes)


def _field_bytes(content_bytes: int) -> int:
    """A field of so many bytes, with its tag and length."""
    return 1 + max(1, (content_bytes.bit_length() + 6) // 7) + content_bytes
