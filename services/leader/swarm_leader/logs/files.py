"""Logs of fellows as files: two of a megabyte for each, so many for all. Blocks; a full disk costs logs alone."""

import contextlib
import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

FILE_BYTES_MAX = 2**20
NOW, BEFORE = "now.log", "before.log"


@dataclass(frozen=True)
class LogLine:
    """One line. number: grows by one with each of its fellow. at_s: Unix seconds on the leader's clock."""

    number: int
    at_s: float
    source: str
    text: str


class LogFiles:
    """A folder for each fellow below one. Used by one thread at a time.

    total_bytes_max: of all together; then the files that were written least lately are dropped. free_bytes_min: with
    less left on the disk nothing is written.
    """

    def __init__(self, folder: Path, total_bytes_max: int, free_bytes_min: int) -> None:
        self._folder = folder
        self._total_bytes_max = total_bytes_max
        self._free_bytes_min = free_bytes_min

    def append(self, fellow_id: str, lines: Sequence[LogLine]) -> bool:
        """Write lines. False when the disk does not take them; never raises for that."""
        written = "".join(json.dumps(asdict(line), ensure_ascii=False) + "\n" for line in lines)
        own = self._of(fellow_id)
        try:
            if self._total_bytes_max <= 0 or shutil.disk_usage(self._folder.parent).free < self._free_bytes_min:
                return False
            is_new = not own.is_dir()
            own.mkdir(mode=0o700, parents=True, exist_ok=True)
            with (own / NOW).open("a", encoding="utf-8", errors="replace") as file:
                file.write(written)
                size_bytes = file.tell()
            if size_bytes >= FILE_BYTES_MAX:
                (own / NOW).replace(own / BEFORE)
            if is_new or size_bytes >= FILE_BYTES_MAX:
                self._make_room()
        except OSError:
            return False
        return True

    def tail(self, fellow_id: str, count: int, source: str = "") -> list[LogLine]:
        """The last lines, oldest first; of one source, or "" of all. What cannot be read is left out."""
        lines = [line for line in self._lines(fellow_id) if source in ("", line.source)]
        return lines[-count:]

    def last_number(self, fellow_id: str) -> int:
        """Of the newest line; 0 when there is none."""
        return max((line.number for line in self._lines(fellow_id)), default=0)

    def fellow_ids(self) -> list[str]:
        """Whose logs are kept."""
        with contextlib.suppress(OSError):
            return sorted(folder.name for folder in self._folder.iterdir() if folder.is_dir())
        return []

    def remove(self, fellow_id: str) -> None:
        """Forget a fellow's logs."""
        shutil.rmtree(self._of(fellow_id), ignore_errors=True)

    def _lines(self, fellow_id: str) -> Iterator[LogLine]:
        for name in (BEFORE, NOW):
            try:
                raw = (self._of(fellow_id) / name).read_bytes()
            except OSError:
                continue
            for line in raw.splitlines():
                with contextlib.suppress(ValueError, TypeError):  # cut off by a disk that was full, or a kill
                    yield LogLine(**json.loads(line))

    def _make_room(self) -> None:
        """Drop the files written least lately until all fit."""
        files = []
        for file in self._folder.glob("*/*.log"):
            with contextlib.suppress(OSError):
                facts = file.stat()
                files.append((facts.st_mtime, facts.st_size, file))
        total_bytes = sum(size for _, size, _ in files)
        for _, size_bytes, file in sorted(files):
            if total_bytes <= self._total_bytes_max:
                return
            file.unlink(missing_ok=True)
            total_bytes -= size_bytes

    def _of(self, fellow_id: str) -> Path:
        assert fellow_id.replace("-", "").isalnum(), "ids are the leader's own"
        return self._folder / fellow_id
