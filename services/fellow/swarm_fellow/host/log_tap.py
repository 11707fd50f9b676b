"""Lines of this fellow and its stages on their way to the leader: bounded, the oldest fall out. Sends nothing."""

import re
import threading
from collections import deque
from dataclasses import dataclass

from swarm_core.clock import Clock
from swarm_core.secrets import redacted

LINES_MAX = 2000
LINE_CHARS_MAX = 2000
UNFINISHED_BYTES_MAX = 8192  # of a line whose end has not come
FELLOW = "fellow"
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_OUT_OF_MEMORY = re.compile(r"out of memory|OutOfMemoryError|MemoryError|Cannot allocate memory", re.IGNORECASE)
_ERROR = re.compile(r'^\S+ \[(error|critical)\b|"level": "(error|critical)"')
ONE_CAUSE_S = 2.0  # one failure writes many lines


@dataclass(frozen=True)
class TappedLine:
    """source: FELLOW, or the name of a stage's log. at_s: Unix seconds here."""

    at_s: float
    source: str
    text: str


class LogTap:
    """What was written lately. May be fed from any thread; never raises, never waits for the reader."""

    def __init__(self, clock: Clock) -> None:
        self.errors = 0  # of this fellow, since the start
        self.out_of_memory = 0  # of it and its stages
        self._clock = clock
        self._lock = threading.Lock()
        self._lines: deque[TappedLine] = deque()
        self._unfinished: dict[str, bytes] = {}
        self._dropped = 0
        self._out_of_memory_at_s = -ONE_CAUSE_S

    def add(self, text: str, source: str = FELLOW) -> None:
        """Lines of a log. Secrets are taken out here, whoever wrote them."""
        with self._lock:
            for line in text.splitlines():
                self._add(source, line)

    def add_output(self, source: str, output: bytes) -> None:
        """What a stage's process wrote; a line counts once its end has come."""
        with self._lock:
            *lines, rest = (self._unfinished.pop(source, b"") + output).split(b"\n")
            if len(rest) > UNFINISHED_BYTES_MAX:
                lines, rest = [*lines, rest], b""
            if rest:
                self._unfinished[source] = rest
            for line in lines:
                self._add(source, line.decode(errors="replace"))

    def take(self, lines_max: int) -> tuple[list[TappedLine], int]:
        """The oldest lines, which are gone from here then, and how many fell out before them."""
        with self._lock:
            taken = [self._lines.popleft() for _ in range(min(lines_max, len(self._lines)))]
            dropped, self._dropped = self._dropped, 0
        return taken, dropped

    def _add(self, source: str, line: str) -> None:
        line = redacted(_COLOURS.sub("", line).rstrip())[:LINE_CHARS_MAX]
        if not line:
            return
        if _OUT_OF_MEMORY.search(line):
            now_s = self._clock.monotonic_s()
            self.out_of_memory += now_s - self._out_of_memory_at_s >= ONE_CAUSE_S
            self._out_of_memory_at_s = now_s
        elif source == FELLOW and _ERROR.search(line):
            self.errors += 1
        if len(self._lines) >= LINES_MAX:
            self._lines.popleft()
            self._dropped += 1
        self._lines.append(TappedLine(self._clock.unix_s(), source, line))
