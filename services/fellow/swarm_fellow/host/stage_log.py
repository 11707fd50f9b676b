"""What a stage process writes: to a file that cannot grow without end, and its last lines kept for error messages."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from pathlib import Path

LOG_BYTES_MAX = 4 * 2**20  # one file; the one before it is kept as .1
TAIL_BYTES = 4096
TAIL_LINES = 15
_READ_BYTES = 64 * 2**10
OutputTap = Callable[[str, bytes], None]


class StageLog:
    """A bounded log file. A disk that does not take it costs the file, never the stage."""

    def __init__(self, path: Path, bytes_max: int = LOG_BYTES_MAX, tap: OutputTap | None = None) -> None:
        """tap: told of all output, with the name of the log; must not raise."""
        self.path = path
        self._tap = tap
        self._bytes_max = bytes_max
        self._tail: deque[bytes] = deque()
        self._tail_bytes = 0
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._open()

    async def follow(self, stream: asyncio.StreamReader | None) -> None:
        """Take all that comes until the stream ends."""
        while stream and (output := await stream.read(_READ_BYTES)):
            self.write(output)

    def write(self, output: bytes) -> None:
        """Add output to the file and the tail."""
        if self._tap is not None:
            self._tap(self.path.stem, output)
        self._tail.append(output[-TAIL_BYTES:])
        self._tail_bytes += len(self._tail[-1])
        while self._tail_bytes - len(self._tail[0]) >= TAIL_BYTES:
            self._tail_bytes -= len(self._tail.popleft())
        with contextlib.suppress(OSError, ValueError):
            if self._file is not None:
                self._file.write(output)
                self._file.flush()
                if self._file.tell() > self._bytes_max:
                    self._rotate()

    def tail(self) -> str:
        """The last lines, at most 15 and 4 KiB."""
        lines = b"".join(self._tail)[-TAIL_BYTES:].decode(errors="replace").splitlines()
        return "\n".join(lines[-TAIL_LINES:])

    def move_to(self, path: Path) -> None:
        """Write to this file from now on: a spare became a stage. The one before is removed; the tail stays."""
        self.close()
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)
        self.path = path
        self._file = self._open()

    def close(self) -> None:
        """Close the file; the tail stays."""
        with contextlib.suppress(OSError):
            if self._file is not None:
                self._file.close()
                self._file = None

    def _open(self):
        with contextlib.suppress(OSError):
            return self.path.open("ab")
        return None

    def _rotate(self) -> None:
        self.close()
        self.path.replace(self.path.with_name(self.path.name + ".1"))
        self._file = self._open()
