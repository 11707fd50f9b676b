"""Which byte ranges of a hub's files to ask for. Pure: tensors that lie side by side become one range, nothing more."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Stretch:
    """Bytes wanted of one item. offset: the first one's position in the item, begin: in the file."""

    item: int
    file: str
    begin: int
    offset: int
    size_bytes: int


@dataclass(frozen=True)
class FileRange:
    """Consecutive bytes of one file, half open, and whose they are, in order."""

    file: str
    begin: int
    end: int
    stretches: tuple[Stretch, ...]


def plan_ranges(stretches: Sequence[Stretch]) -> list[FileRange]:
    """Every byte wanted exactly once for each item that wants it, in as few ranges as touch no other byte."""
    ranges: list[FileRange] = []
    for stretch in sorted(stretches, key=lambda one: (one.file, one.begin, one.item)):
        if stretch.size_bytes <= 0:
            continue
        end = stretch.begin + stretch.size_bytes
        last = ranges[-1] if ranges else None
        if last is not None and (last.file, last.end) == (stretch.file, stretch.begin):
            ranges[-1] = FileRange(last.file, last.begin, end, (*last.stretches, stretch))
        else:
            ranges.append(FileRange(stretch.file, stretch.begin, end, (stretch,)))
    return ranges
