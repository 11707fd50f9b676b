"""Which tensors a safetensors file of this machine claims to hold. Believes nothing: what is odd is left out."""

import contextlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from swarm_core.errors import ServableCorrupt
from swarm_core.json_bounds import read_json_object
from swarm_core.manifest import DTYPE_BYTES

HEADER_BYTES_MAX = 16 * 2**20
_LENGTH_BYTES = 8
_DIMENSIONS_MAX = 8
_PEFT_PREFIX = "base_model.model."  # peft puts it before the names of an adapter's tensors

# What a tensor is looked up by: name, dtype as spelled in safetensors, shape.
TensorKey = tuple[str, str, tuple[int, ...]]


@dataclass(frozen=True)
class LocalSpan:
    """Where a tensor's bytes lie, as the header claims. begin: absolute position in the file."""

    path: Path
    changed_ns: int
    begin: int
    size_bytes: int


@contextlib.contextmanager
def open_plain(path: Path) -> Iterator[BinaryIO]:
    """A regular file, for reading; a pipe or device of that name is not waited for. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{path} is not a plain file")
        yield file


def read_spans(path: Path) -> dict[TensorKey, LocalSpan]:
    """What the file claims to hold, within its own size. Empty when it is no safetensors file. Raises OSError."""
    with open_plain(path) as file:
        status = os.fstat(file.fileno())
        length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
        if not 0 < length <= min(HEADER_BYTES_MAX, status.st_size - _LENGTH_BYTES):
            return {}
        raw = file.read(length)
    try:
        document = read_json_object(raw, path.name, HEADER_BYTES_MAX)
    except ServableCorrupt:
        return {}
    spans: dict[TensorKey, LocalSpan] = {}
    data_begin = _LENGTH_BYTES + length
    for name, entry in document.items():
        claim = _claim(entry, status.st_size - data_begin)
        if claim is not None:
            dtype, shape, begin, size_bytes = claim
            span = LocalSpan(path, status.st_mtime_ns, data_begin + begin, size_bytes)
            spans[(name.removeprefix(_PEFT_PREFIX), dtype, shape)] = span
    return spans


def _claim(entry: Any, data_bytes: int) -> tuple[str, tuple[int, ...], int, int] | None:
    """(dtype, shape, first byte, bytes) of one entry; None when they make no sense."""
    if not isinstance(entry, dict):
        return None
    dtype = entry.get("dtype")
    shape: Any = entry.get("shape")
    offsets: Any = entry.get("data_offsets")
    if not (isinstance(dtype, str) and dtype in DTYPE_BYTES and _are_counts(shape) and _are_counts(offsets)):
        return None
    if len(shape) > _DIMENSIONS_MAX or len(offsets) != 2 or not offsets[0] <= offsets[1] <= data_bytes:
        return None
    return dtype, tuple(shape), offsets[0], offsets[1] - offsets[0]


def _are_counts(numbers: Any) -> bool:
    return isinstance(numbers, list) and all(
        isinstance(number, int) and not isinstance(number, bool) and 0 <= number < 2**63 for number in numbers
    )
