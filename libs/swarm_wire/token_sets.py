"""Sets of token ids as core.v1.TokenSet, checked before anything is allocated. numpy only."""

import numpy as np
from silentswarm.core.v1 import token_set_pb2
from swarm_core.errors import BadFrame

_ID_LIMITS = (1 << 7, 1 << 14, 1 << 21, 1 << 28)  # ids from the n-th on take n + 2 bytes


def token_set(allowed_V: np.ndarray) -> token_set_pb2.TokenSet:
    """The shortest form of what `allowed_V` says of each id."""
    allowed_V = np.asarray(allowed_V, dtype=bool)
    only, all_but = np.flatnonzero(allowed_V), np.flatnonzero(~allowed_V)
    bits_bytes = _bits_bytes(len(allowed_V))
    only_bytes, all_but_bytes = _list_bytes(only), _list_bytes(all_but)
    if bits_bytes < min(only_bytes, all_but_bytes):
        return token_set_pb2.TokenSet(bits=np.packbits(allowed_V, bitorder="little").tobytes())
    if only_bytes <= all_but_bytes:
        return token_set_pb2.TokenSet(only=token_set_pb2.TokenSet.IdList(ids=only.tolist()))
    return token_set_pb2.TokenSet(all_but=token_set_pb2.TokenSet.IdList(ids=all_but.tolist()))


def mask_of(allowed: token_set_pb2.TokenSet, vocabulary_size: int) -> np.ndarray:
    """allowed_V, one bool an id, of its own memory.

    Raises BadFrame, before it allocates, for a set of no form, a wrong length, or ids beyond the vocabulary, out of
    order or twice.
    """
    check_token_set(allowed, vocabulary_size)
    form = allowed.WhichOneof("form")
    if form == "bits":
        packed = np.frombuffer(allowed.bits, dtype=np.uint8)
        return np.unpackbits(packed, count=vocabulary_size, bitorder="little").view(bool)
    allowed_V = np.full(vocabulary_size, form == "all_but")
    ids = allowed.only.ids if form == "only" else allowed.all_but.ids
    allowed_V[np.fromiter(ids, dtype=np.int64, count=len(ids))] = form == "only"
    return allowed_V


def check_token_set(allowed: token_set_pb2.TokenSet, vocabulary_size: int) -> None:
    """Raises BadFrame where mask_of would; allocates nothing but a copy of the bits that came."""
    form = allowed.WhichOneof("form")
    if form is None:
        raise BadFrame("a set of tokens says neither which are in it nor which are not")
    if form == "bits":
        _check_bits(allowed.bits, vocabulary_size)
        return
    ids = allowed.only.ids if form == "only" else allowed.all_but.ids
    if len(ids) > vocabulary_size:
        raise BadFrame(f"a set of {len(ids)} tokens of a vocabulary of {vocabulary_size}", ids=len(ids))
    previous = -1
    for token in ids:
        if token <= previous:
            raise BadFrame(f"a set of tokens has {token} behind {previous}; they ascend", token=token)
        previous = token
    if previous >= vocabulary_size:
        raise BadFrame(f"a set of tokens has {previous}, beyond a vocabulary of {vocabulary_size}", token=previous)


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


def _bits_bytes(vocabulary_size: int) -> int:
    return _field_bytes((vocabulary_size + 7) // 8)


def _field_bytes(content_bytes: int) -> int:
    """A field of so many bytes, with its tag and length."""
    return 1 + max(1, (content_bytes.bit_length() + 6) // 7) + content_bytes
