"""Weight files on a hub, read over HTTP without keeping them: headers by ranges, then every byte once through a hash.

Part of the child process that catalog.hub is; its rules on where to connect hold. Memory stays at one block and one
header, whatever the hub sends; a line that breaks is taken up where it broke.
"""

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swarm_core.errors import ServableCorrupt, Unavailable

from swarm_leader.catalog.reference import READ_NAME, span_facts
from swarm_leader.catalog.sources.checkpoint import read_checkpoint
from swarm_leader.catalog.sources.header import LENGTH_BYTES, TensorSpan, header_length, parse_header

Report = Callable[[str, int, int], None]
TRIES = 6  # in a row without one byte more
_PAUSE_S = 0.5  # before the first new try; doubles
_PAUSE_S_MAX = 15.0


@dataclass(frozen=True)
class RemoteFile:
    """One weight file. size_bytes, sha256: as the hub's listing has them; sha256 "" when it says none."""

    name: str
    url: str
    size_bytes: int
    sha256: str = ""


class HubReader:
    """Reads ranges of files.

    client: the hub client's own HTTP client, which follows redirects; its library has another name with each version.
    headers: of every request. pause_s: before the first new try.
    """

    def __init__(self, client: Any, headers: Mapping[str, str], pause_s: float = _PAUSE_S) -> None:
        self._client = client
        self._headers = {**headers, "Accept-Encoding": "identity"}
        self._pause_s = pause_s

    def header(self, file: RemoteFile) -> dict[str, TensorSpan]:
        """Every tensor of a file. Raises ServableCorrupt for a header that lies, Unavailable when the hub gives up."""
        start = b"".join(self.blocks(file, 0, min(LENGTH_BYTES, file.size_bytes)))
        length = header_length(file.name, start, file.size_bytes)
        raw = b"".join(self.blocks(file, LENGTH_BYTES, LENGTH_BYTES + length))
        return parse_header(file.name, raw, length, file.size_bytes)

    def hashes(
        self, file: RemoteFile, spans: Mapping[str, TensorSpan], on_bytes: Callable[[int], None]
    ) -> dict[str, str]:
        """SHA-256 of every tensor, hex; the whole file passes by once. on_bytes: how many more have.

        Raises ServableCorrupt when the file is not the one the listing names, Unavailable.
        """
        order = sorted(spans, key=lambda name: (spans[name].begin, spans[name].size_bytes))
        digests = {name: hashlib.sha256() for name in order}
        whole = hashlib.sha256()
        position, current = 0, 0
        for block in self.blocks(file, 0, file.size_bytes):
            whole.update(block)
            stop = position + len(block)
            for name in order[current:]:
                span = spans[name]
                if span.begin >= stop:
                    break
                end = span.begin + span.size_bytes
                digests[name].update(block[max(span.begin - position, 0) : max(end - position, 0)])
                if end <= stop:
                    current += 1
            position = stop
            on_bytes(len(block))
        if file.sha256 and whole.hexdigest() != file.sha256:
            raise ServableCorrupt(f"{file.name} is not what the hub says it is: its SHA-256 is {whole.hexdigest()}")
        return {name: digest.hexdigest() for name, digest in digests.items()}

    def blocks(self, file: RemoteFile, begin: int, stop: int) -> Iterator[bytes]:
        """The bytes from begin to before stop, in blocks; taken up again where the line broke."""
        tries = 0
        while begin < stop:
            try:
                for block in self._read(file, begin, stop):
                    begin, tries = begin + len(block), 0
                    yield block
                why = "the hub ended the answer early"
            except _Broken as error:
                why = str(error)
            if begin < stop:
                tries += 1
                if tries >= TRIES:
                    raise Unavailable(f"{file.name} breaks off at byte {begin} of {file.size_bytes}: {why}")
                time.sleep(min(self._pause_s * 2 ** (tries - 1), _PAUSE_S_MAX))

    def _read(self, file: RemoteFile, begin: int, stop: int) -> Iterator[bytes]:
        """One request's worth. A hub that ignores the range is read from its beginning."""
        with self._answer(file, begin, stop) as answer:
            skip = 0 if answer.status_code == 206 else begin
            left = stop - begin
            for raw in answer.iter_raw():  # as they come: of a larger block, a break would lose a part
                block = raw[skip:]
                skip -= len(raw) - len(block)
                if block:
                    yield block[:left]
                    left -= min(left, len(block))
                if not left:
                    return

    @contextmanager
    def _answer(self, file: RemoteFile, begin: int, stop: int) -> Iterator[Any]:
        """An answer whose body is the range, or the file."""
        headers = {**self._headers, "Range": f"bytes={begin}-{stop - 1}"}
        try:
            with self._client.stream("GET", file.url, headers=headers) as answer:
                status, coding = answer.status_code, answer.headers.get("Content-Encoding", "identity")
                if status == 429 or status >= 500:
                    raise _Broken(f"the hub answers {status}")
                if status not in (200, 206) or coding != "identity":
                    raise Unavailable(f"the hub answers {status} ({coding[:40]}) for {file.name}")
                if status == 206 and not _is_range(answer.headers.get("Content-Range", ""), begin, file.size_bytes):
                    shown = answer.headers.get("Content-Range", "")[:80]
                    raise ServableCorrupt(
                        f"{file.name}: the hub sends {shown!r} of the {file.size_bytes} bytes it listed"
                    )
                yield answer
        except Exception as error:
            if _package(error) != _package(self._client) and not isinstance(error, OSError):
                raise
            raise _Broken(f"{type(error).__name__}: {error}") from error


def read_weights(reader: HubReader, files: Mapping[str, RemoteFile], folder: Path, report: Report) -> None:
    """Read every weight file once, and leave what was read in the checkpoint's folder, as READ_NAME.

    files: all the repository has, by name. All that can be refused is refused before gigabytes pass.
    Raises BadRequest, ServableCorrupt, Unavailable.
    """
    headers: dict[str, dict[str, TensorSpan]] = {}

    def header_of(name: str) -> dict[str, TensorSpan]:
        if name not in files:
            raise ServableCorrupt(f"{name} is missing from the repository")
        headers[name] = reader.header(files[name])
        report("headers", len(headers), 0)
        return headers[name]

    read_checkpoint(folder, set(files), header_of)
    total = sum(files[name].size_bytes for name in headers)
    done = 0

    def on_bytes(count: int) -> None:
        nonlocal done
        done += count
        report("hash", done, total)

    read = {}
    for name, spans in headers.items():
        hashes = reader.hashes(files[name], spans, on_bytes)
        read[name] = {tensor: span_facts(span, hashes[tensor]) for tensor, span in spans.items()}
    (folder / READ_NAME).write_text(json.dumps(read))


class _Broken(Exception):
    """The line broke, or the hub is busy: worth another try."""


def _package(thing: object) -> str:
    """Which distribution's code made this."""
    return type(thing).__module__.partition(".")[0]


def _is_range(said: str, begin: int, size_bytes: int) -> bool:
    """Whether "bytes 5-9/100" begins where it was asked to, in a file of the size that was listed."""
    unit, _, rest = said.partition(" ")
    first, _, last_and_size = rest.partition("-")
    return unit == "bytes" and first == str(begin) and last_and_size.rpartition("/")[2] == str(size_bytes)
