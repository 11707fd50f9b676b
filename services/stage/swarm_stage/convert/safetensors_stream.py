"""Writes a safetensors file tensor by tensor, so that a model larger than memory can be converted. float32 only."""

import json
import struct
from collections.abc import Mapping
from math import prod
from pathlib import Path
from types import TracebackType

import numpy as np
from swarm_core.errors import ServableCorrupt

_F32_BYTES = 4


class SafetensorsWriter:
    """A context: the file gets its name only when it is left without an error."""

    def __init__(self, target: Path, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """shapes: name -> shape of every tensor that will be written, each once, in any order."""
        self._target = target
        self._partial = target.with_name(target.name + ".partial")
        self._shapes = shapes
        header: dict[str, object] = {"__metadata__": {"format": "pt"}}
        self._begin: dict[str, int] = {}
        self.done_bytes, self.total_bytes = 0, 0
        for name in sorted(shapes):
            size_bytes = prod(shapes[name]) * _F32_BYTES
            self._begin[name] = self.total_bytes
            offsets = [self.total_bytes, self.total_bytes + size_bytes]
            header[name] = {"dtype": "F32", "shape": list(shapes[name]), "data_offsets": offsets}
            self.total_bytes += size_bytes
        text = json.dumps(header, separators=(",", ":")).encode()
        self._header = text + b" " * (-len(text) % 8)  # readers may map the values, so they start aligned

    def __enter__(self) -> "SafetensorsWriter":
        self._file = self._partial.open("wb")
        self._file.write(struct.pack("<Q", len(self._header)) + self._header)
        return self

    def write(self, name: str, values: np.ndarray) -> None:
        """One tensor, float32. Raises ServableCorrupt when it is not of the promised shape."""
        if values.shape != self._shapes[name]:
            raise ServableCorrupt(f"tensor {name} is {list(values.shape)}, the config needs {list(self._shapes[name])}")
        assert values.dtype == np.float32, values.dtype
        self._file.seek(8 + len(self._header) + self._begin[name])
        self._file.write(values.data)
        self.done_bytes += values.nbytes

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._file.close()
        if kind is None:
            self._partial.replace(self._target)
        else:
            self._partial.unlink(missing_ok=True)
