"""Where words go: answers to stdout, everything else to stderr; colour only on a terminal. Knows no command."""

import json
import sys
import unicodedata
from collections.abc import Iterable, Iterator
from typing import TextIO

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markup import escape
from rich.segment import Segment
from rich.table import Table

# What is piped is read by programs: a row is one line, however long.
_PIPE_WIDTH = 10_000


def console_on(stream: TextIO) -> Console:
    """A console that writes escape codes to a terminal only, whatever FORCE_COLOR says."""
    if stream.isatty():
        return Console(file=stream, highlight=False, soft_wrap=False)
    return Console(
        file=stream, highlight=False, force_terminal=False, color_system=None, width=_PIPE_WIDTH, no_color=True
    )


def out() -> Console:
    """Answers."""
    return console_on(sys.stdout)


def err() -> Console:
    """Errors and progress."""
    return console_on(sys.stderr)


def write_text(text: str) -> None:
    """Write what others made to stdout, at once; never through rich, which would read brackets in it as markup.

    On a terminal it is without control characters, which could clear it or fill the clipboard; piped, as it came.
    """
    if sys.stdout.isatty():
        text = without_controls(text)
    sys.stdout.write(text)
    sys.stdout.flush()


def shown(text: str) -> str:
    """What others wrote, as a cell or a part of a line of rich: neither markup nor control characters, on one line."""
    return escape(" ".join(without_controls(text).split("\n")).replace("\t", " "))


def without_controls(text: str) -> str:
    """The text without control characters other than line ends and tabs."""
    return "".join(each for each in text if each in "\n\t" or unicodedata.category(each) != "Cc")


def json_of(message: Message) -> dict[str, object]:
    """A message in proto JSON with the proto's own field names; 64-bit numbers are strings there."""
    return MessageToDict(message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)


def print_json(document: object) -> None:
    """One JSON document on stdout."""
    sys.stdout.write(json.dumps(document, indent=2, ensure_ascii=False) + "\n")


class _OpenTable(Table):
    """A table whose rows end where their words end: piped, one long cell would have every row as long as itself."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        drawn = super().__rich_console__(console, options)
        for line in Segment.split_lines(one for one in drawn if isinstance(one, Segment)):
            yield from _without_padding(line)
            yield Segment.line()


def _without_padding(line: Iterable[Segment]) -> Iterator[Segment]:
    """A line without the spaces at its end."""
    segments = list(line)
    while segments and not segments[-1].text.rstrip(" "):
        segments.pop()
    if segments:
        last = segments.pop()
        segments.append(Segment(last.text.rstrip(" "), last.style, last.control))
    return iter(segments)


def table_of(*headers: str, whole: str = "") -> Table:
    """An open table; long cells fold on a narrow terminal instead of being cut.

    whole: the column that never folds, since what it holds is copied.
    """
    table = _OpenTable(box=None, pad_edge=False, header_style="bold")
    for header in headers:
        table.add_column(header, overflow="fold", no_wrap=header == whole)
    return table


def bytes_text(count: int | None) -> str:
    """Bytes for people, binary units; None is unknown and says so."""
    if count is None:
        return "unknown"
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024 or unit == "GiB":
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    raise AssertionError("unreachable: GiB ends the loop")


def count_text(count: int) -> str:
    """A count for people: 134515008 -> 134.5M."""
    for limit, unit in ((10**9, "B"), (10**6, "M"), (10**3, "k")):
        if count >= limit:
            return f"{count / limit:.1f}{unit}"
    return str(count)
