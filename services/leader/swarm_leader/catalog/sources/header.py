"""The header of a safetensors file, checked against the file before anything in it is believed. Reads no tensor."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swarm_core.errors import ServableCorrupt
from swarm_core.json_bounds import read_json_object
from swarm_core.manifest import DTYPE_BYTES

from swarm_leader.catalog.files import open_plain

HEADER_BYTES_MAX = 16 * 2**20  # room for 100 000 tensors; the library's own bound, 100 MB, takes a GB to parse
_DIMENSIONS_MAX = 8
LENGTH_BYTES = 8  # before the header: how long it is


@dataclass(frozen=True)
class TensorSpan:
    """Where a tensor's raw bytes lie. begin: absolute position in the file."""

    begin: int
    size_bytes: int
    dtype: str
    shape: tuple[int, ...]


def read_header(path: Path) -> dict[str, TensorSpan]:
    """Every tensor of a file by name. Reads the header only.

    Raises ServableCorrupt when it is no plain file, the header is longer than the file or than 16 MiB, is not what the
    format says, or has a range outside the file, over another range, or of another size than its shape and dtype.
    """
    with open_plain(path) as file:
        file_bytes = os.fstat(file.fileno()).st_size
        length = header_length(path.name, file.read(LENGTH_BYTES), file_bytes)
        raw = file.read(length)
    return parse_header(path.name, raw, length, file_bytes)


def header_length(file: str, start: bytes, file_bytes: int) -> int:
    """How many bytes of header follow a file's first eight. Raises ServableCorrupt when that cannot be."""
    length = int.from_bytes(start, "little")
    if len(start) < LENGTH_BYTES or length > min(HEADER_BYTES_MAX, file_bytes - LENGTH_BYTES):
        raise ServableCorrupt(
            f"{file}: the header claims {length} bytes; the file has {file_bytes}, a header at most "
            f"{HEADER_BYTES_MAX}{_looks_pickled(start)}"
        )
    return length


def parse_header(file: str, raw: bytes, length: int, file_bytes: int) -> dict[str, TensorSpan]:
    """Every tensor of a file of `file_bytes` by name. length: what header_length said. Raises as read_header."""
    if len(raw) != length:
        raise ServableCorrupt(f"{file}: the header is cut short at {len(raw)} of {length} bytes")
    data_begin = LENGTH_BYTES + length
    spans = {
        name: _span(file, name, entry, data_begin, file_bytes - data_begin)
        for name, entry in _entries(file, raw).items()
    }
    _check_apart(file, spans)
    return spans


def _entries(file: str, raw: bytes) -> dict[str, Any]:
    """The header's JSON object without its metadata."""
    document = read_json_object(raw, f"{file}: the header", HEADER_BYTES_MAX)
    document.pop("__metadata__", None)
    return document


def _looks_pickled(start: bytes) -> str:
    """A hint for weights that were renamed; only asked once the header makes no sense."""
    is_pickled = start.startswith(b"PK\x03\x04") or (start[:1] == b"\x80" and start[1:2] in b"\x02\x03\x04\x05")
    return "; it looks like pickled weights under another name, which are never read" if is_pickled else ""


def _span(file: str, name: str, entry: Any, data_begin: int, data_bytes: int) -> TensorSpan:
    """One entry, checked against the room there is."""
    where = f"{file}: tensor {name[:200]!r}"
    if not isinstance(entry, dict) or not isinstance(entry.get("dtype"), str):
        raise ServableCorrupt(f"{where} has no dtype")
    shape, offsets = _counts(entry.get("shape")), _counts(entry.get("data_offsets"))
    if shape is None or len(shape) > _DIMENSIONS_MAX:
        raise ServableCorrupt(f"{where} has no shape of at most {_DIMENSIONS_MAX} counts")
    if offsets is None or len(offsets) != 2 or not offsets[0] <= offsets[1] <= data_bytes:
        raise ServableCorrupt(f"{where} lies outside the {data_bytes} bytes of the file")
    dtype, size_bytes = entry["dtype"], offsets[1] - offsets[0]
    element_bytes = DTYPE_BYTES.get(dtype)
    if element_bytes is None:
        raise ServableCorrupt(f"{where} has dtype {dtype[:20]!r}, which is not served")
    expected_bytes = element_bytes
    for extent in shape:
        expected_bytes *= extent
    if expected_bytes != size_bytes:
        raise ServableCorrupt(f"{where}: shape {shape} of {dtype} is {expected_bytes} bytes, its range {size_bytes}")
    return TensorSpan(begin=data_begin + offsets[0], size_bytes=size_bytes, dtype=dtype, shape=tuple(shape))


def _counts(numbers: Any) -> list[int] | None:
    """A list of whole numbers from 0 to 2^63 - 1; None when it is anything else."""
    are_counts = isinstance(numbers, list) and all(
        isinstance(number, int) and not isinstance(number, bool) and 0 <= number < 2**63 for number in numbers
    )
    return numbers if are_counts else None


def _check_apart(file: str, spans: dict[str, TensorSpan]) -> None:
    """No two tensors share a byte."""
    by_begin: Iterable[tuple[str, TensorSpan]] = sorted(
        spans.items(), key=lambda item: (item[1].begin, item[1].size_bytes)
    )
    end, last = 0, ""
    for name, span in by_begin:
        if span.size_bytes and span.begin < end:
            raise ServableCorrupt(f"{file}: tensors {last[:200]!r} and {name[:200]!r} overlap")
        if span.size_bytes:
            end, last = span.begin + span.size_bytes, name
