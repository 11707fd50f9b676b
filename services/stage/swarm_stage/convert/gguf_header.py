"""The header of a GGUF file, walked and compared with the file before any reader believes it. Reads no tensor.

Readers allocate what a count says and trust an offset; after this walk, every count, length and offset fits the file.
"""

import mmap
import os
import re
import stat
import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path

from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from swarm_core.errors import ServableCorrupt
from swarm_core.manifest import TENSORS_MAX

FACTS_MAX = 10_000
ELEMENTS_MAX = 8_000_000  # of all arrays: a vocabulary of a million, its scores, types and merges
KEY_BYTES_MAX = 256
TEXT_BYTES_MAX = 4 * 2**20  # chat templates have up to a hundred kB
ELEMENT_BYTES_MAX = 4096  # a token, a merge
_DIMENSIONS_MAX = 4
_ALIGNMENT_MAX = 2**20
_ALIGNMENT_KEY = "general.alignment"
_VERSIONS = (2, 3)
_U32, _STRING, _ARRAY = 4, 8, 9
_WIDTHS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_KEY = re.compile(rb"[!-~]{1,256}")
_NAME = re.compile(rb"[A-Za-z0-9_.-]{1,200}")


def check_gguf(path: Path) -> None:
    """Raise ServableCorrupt when `path` is no GGUF file of version 2 or 3 whose header fits it; else do nothing.

    Takes about a second for a vocabulary of a million. Raises OSError when it cannot be read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)  # a pipe is not waited for
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ServableCorrupt(f"{path} is no plain file, so it is no GGUF file")
        if file.read(4) != b"GGUF":
            raise ServableCorrupt(f"{path} is not a GGUF file: it does not begin as one")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as blob:
            try:
                _Walk(blob).check()
            except _Wrong as wrong:
                raise ServableCorrupt(f"{path} cannot be read as GGUF: {wrong}") from None


class _Wrong(Exception):
    """What does not fit."""


@dataclass(frozen=True)
class _Stored:
    """One tensor: its name, and the bytes it takes, from the start of the tensors."""

    name: str
    begin: int
    size_bytes: int


class _Walk:
    """A position in the file that never leaves it."""

    def __init__(self, blob: mmap.mmap) -> None:
        self._blob = blob
        self._at = 4
        self._alignment = 32
        self._elements = 0

    def check(self) -> None:
        """From the version to the end of the last tensor. Raises _Wrong."""
        version = self._number("I")
        if version not in _VERSIONS:
            raise _Wrong(f"it is of version {version}; versions 2 and 3 are read")
        tensor_count, fact_count = self._number("Q"), self._number("Q")
        if tensor_count > TENSORS_MAX or fact_count > FACTS_MAX:
            raise _Wrong(
                f"it claims {tensor_count} tensors and {fact_count} facts; at most {TENSORS_MAX} and {FACTS_MAX}"
            )
        keys: set[bytes] = set()
        for _ in range(fact_count):
            self._pass_fact(keys)
        tensors = [self._tensor() for _ in range(tensor_count)]
        begin = -(-self._at // self._alignment) * self._alignment
        self._check_places(tensors, len(self._blob) - begin)

    def _pass_fact(self, keys: set[bytes]) -> None:
        key = self._text(KEY_BYTES_MAX)
        if not _KEY.fullmatch(key) or key in keys:
            raise _Wrong(f"the key {key[:60]!r} is there twice, or is none")
        keys.add(key)
        kind = self._number("I")
        if key.decode() == _ALIGNMENT_KEY:
            self._alignment = self._number("I") if kind == _U32 else 0
            if not 1 <= self._alignment <= _ALIGNMENT_MAX or self._alignment & (self._alignment - 1):
                raise _Wrong(f"its alignment is {self._alignment}, not a power of two")
        elif kind == _STRING:
            self._text(TEXT_BYTES_MAX)
        elif kind == _ARRAY:
            self._pass_array(key)
        else:
            self._pass(self._width(kind))

    def _pass_array(self, key: bytes) -> None:
        kind, count = self._number("I"), self._number("Q")
        self._elements += count
        if self._elements > ELEMENTS_MAX:
            raise _Wrong(f"{key[:60]!r} has {count} elements; at most {ELEMENTS_MAX} in all lists")
        if kind != _STRING:
            self._pass(count * self._width(kind))
            return
        for _ in range(count):
            self._text(ELEMENT_BYTES_MAX)

    def _tensor(self) -> _Stored:
        name = self._text(KEY_BYTES_MAX)
        if not _NAME.fullmatch(name):
            raise _Wrong(f"{name[:60]!r} is not a tensor's name")
        dimensions = self._number("I")
        if not 1 <= dimensions <= _DIMENSIONS_MAX:
            raise _Wrong(f"tensor {name.decode()} has {dimensions} dimensions; 1 to {_DIMENSIONS_MAX} are read")
        shape = [self._number("Q") for _ in range(dimensions)]
        kind, begin = self._number("I"), self._number("Q")
        if kind not in GGML_QUANT_SIZES:
            raise _Wrong(f"tensor {name.decode()} is of type {kind}, which nobody knows")
        block, block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType(kind)]
        if not all(shape) or shape[0] % block or prod(shape) >= 2**60:
            raise _Wrong(f"tensor {name.decode()} has shape {shape}, which is none of its type")
        return _Stored(name.decode(), begin, prod(shape) // block * block_bytes)

    def _check_places(self, tensors: list[_Stored], room_bytes: int) -> None:
        """Every tensor lies within the file, none on another one."""
        if len({tensor.name for tensor in tensors}) != len(tensors):
            raise _Wrong("a tensor is there twice")
        end, last = 0, "the header"
        for tensor in sorted(tensors, key=lambda tensor: tensor.begin):
            if tensor.begin % self._alignment or tensor.begin < end:
                raise _Wrong(f"tensor {tensor.name} begins at {tensor.begin}, inside {last} or between two places")
            end, last = tensor.begin + tensor.size_bytes, tensor.name
            if end > room_bytes:
                raise _Wrong(f"tensor {tensor.name} would end at {end} of {max(room_bytes, 0)} bytes")

    def _width(self, kind: int) -> int:
        if kind not in _WIDTHS:
            raise _Wrong(f"a value is of type {kind}; lists of lists are not read, nor what nobody knows")
        return _WIDTHS[kind]

    def _number(self, letter: str) -> int:
        begin = self._at
        self._pass(4 if letter == "I" else 8)
        return int(struct.unpack_from(f"<{letter}", self._blob, begin)[0])

    def _text(self, bytes_max: int) -> bytes:
        length = self._number("Q")
        if length > bytes_max:
            raise _Wrong(f"a text of {length} bytes, more than {bytes_max}")
        begin = self._at
        self._pass(length)
        return self._blob[begin : self._at]

    def _pass(self, size_bytes: int) -> None:
        if size_bytes > len(self._blob) - self._at:
            raise _Wrong(f"it ends at {len(self._blob)} bytes, inside its header")
        self._at += size_bytes
