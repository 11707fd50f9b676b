"""Whether cached tensors still are what they were named for: reads and hashes them, once a file. Fetches nothing."""

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from swarm_fellow.host.weights.cache import Piece, disk_errors

FILES_MAX = 200_000  # remembered; a file that was forgotten is only read once more
_STEP_BYTES = 2**20

# Inode, bytes, time of the last write in ns: another stamp is another content.
_Stamp = tuple[int, int, int]


class ProvenTensors:
    """The files that this process has hashed, as they came or when they were first needed.

    A name says what a file was when it was written. A disk that fails, or somebody who writes there, changes it since,
    and a model with wrong weights answers all the same. Blocking, from any thread.
    """

    def __init__(self) -> None:
        self._stamps: dict[Path, _Stamp] = {}

    def knows(self, piece: Piece) -> bool:
        """Whether the file was proven and not written since."""
        return piece.path in self._stamps and self._stamps[piece.path] == _stamp_of(piece.path)

    def remember(self, piece: Piece) -> None:
        """This process has just hashed every byte of it."""
        if len(self._stamps) >= FILES_MAX:
            self._stamps.clear()
        stamp = _stamp_of(piece.path)
        if stamp is not None:
            self._stamps[piece.path] = stamp

    def prove(self, piece: Piece) -> bool:
        """Read a complete tensor; one whose bytes are wrong, or cannot be read, is dropped. Raises DiskFull."""
        stamp = _stamp_of(piece.path)
        found = _sha256_after(piece.path, piece.header)
        if stamp is not None and found == piece.sha256 and stamp == _stamp_of(piece.path):
            self._stamps[piece.path] = stamp
            return True
        with disk_errors(piece.path):
            if stamp == _stamp_of(piece.path):  # another fellow may have brought it anew
                piece.path.unlink(missing_ok=True)
        return False


def _sha256_after(path: Path, header: bytes) -> str:
    """The hash of what follows the header; "" when the file begins otherwise, or cannot be read."""
    with contextlib.suppress(OSError), path.open("rb", buffering=0) as file:
        if file.read(len(header)) != header:
            return ""
        found = hashlib.sha256()
        for step in _steps(file.fileno()):
            found.update(step)
        return found.hexdigest()
    return ""


def _steps(descriptor: int) -> Iterator[bytes]:
    while step := os.read(descriptor, _STEP_BYTES):
        yield step


def _stamp_of(path: Path) -> _Stamp | None:
    with contextlib.suppress(FileNotFoundError):
        status = path.stat()
        return status.st_ino, status.st_size, status.st_mtime_ns
    return None
