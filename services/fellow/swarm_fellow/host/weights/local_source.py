"""Tensors from model folders of this machine, copied when their bytes hash right. Changes nothing in those folders."""

import asyncio
import os
from collections.abc import AsyncGenerator, Iterator, Sequence
from pathlib import Path

import structlog
from swarm_core.clock import Clock
from swarm_core.errors import Unavailable
from swarm_core.manifest import TensorEntry

from swarm_fellow.host.weights.local_headers import LocalSpan, TensorKey, open_plain, read_spans
from swarm_fellow.host.weights.sources import Chunk, ModelBytes, Wanted

log = structlog.get_logger()

READ_BYTES = 2**20
RESCAN_S = 10.0  # how old the list of files may be; headers are read again only where a file changed
FILES_MAX = 4096
TENSORS_MAX = 1_000_000
WRONG_MAX = 100_000  # remembered spans whose bytes were not what they were taken for

# A span, and the SHA-256 it was taken for.
_Taken = tuple[LocalSpan, str]


class LocalModels:
    """Folders that the operator names, as one of the fetcher's sources: Hugging Face folders, shards of a training.

    A tensor is found by name, dtype and shape. Two folders may hold different weights under one name; each is tried.
    """

    name = "local folders"
    crosses_network = False
    tries_max = 1

    def __init__(self, folders: Sequence[Path], clock: Clock, rescan_s: float = RESCAN_S) -> None:
        self._folders = tuple(folders)
        self._clock = clock
        self._rescan_s = rescan_s
        self._scanned_s = float("-inf")
        self._scanning = asyncio.Lock()
        self._headers: dict[tuple[Path, int, int], dict[TensorKey, LocalSpan]] = {}
        self._spans: dict[TensorKey, list[LocalSpan]] = {}
        self._wrong: set[_Taken] = set()
        self._asked: dict[str, tuple[LocalSpan, int]] = {}  # SHA-256 -> what was read for it last, and from which byte

    async def tensors_here(self, model: ModelBytes, names: Sequence[str]) -> set[str]:
        """The tensors for which some file has the right name, dtype and shape, and was not found wrong."""
        if not self._folders:
            return set()
        async with self._scanning:
            if self._clock.monotonic_s() - self._scanned_s >= self._rescan_s:
                self._spans = await asyncio.to_thread(self._scan)
                self._scanned_s = self._clock.monotonic_s()
        tensors = model.manifest.tensors
        return {name for name in names if self._find(name, tensors[name]) is not None}

    def may_ask_again(self, model: ModelBytes, name: str, mismatches: int) -> bool:
        """Whether another file may have it; the one just read is asked no more, unless it only added to other bytes."""
        entry = model.manifest.tensors[name]
        span, offset = self._asked.pop(entry.sha256, (None, 0))
        if span is None:
            return False
        if offset > 0:
            return True
        if len(self._wrong) >= WRONG_MAX:
            self._wrong.clear()
        self._wrong.add((span, entry.sha256))
        return self._find(name, entry) is not None

    async def fetch(self, model: ModelBytes, wanted: Sequence[Wanted]) -> AsyncGenerator[Chunk, None]:
        """The bytes asked for. Raises Unavailable when a file cannot be read any more."""
        for item, want in enumerate(wanted):
            entry = model.manifest.tensors[want.name]
            span = self._find(want.name, entry)
            if span is None:
                raise Unavailable(f"no local folder holds {want.name} any more")
            if len(self._asked) >= WRONG_MAX:
                self._asked.clear()
            self._asked[entry.sha256] = (span, want.offset)  # until it is whole: one load at a time fills a piece
            for offset in range(want.offset, entry.size_bytes, READ_BYTES):
                step_bytes = min(READ_BYTES, entry.size_bytes - offset)
                yield Chunk(item, offset, await asyncio.to_thread(_read, span, offset, step_bytes))

    def _find(self, name: str, entry: TensorEntry) -> LocalSpan | None:
        """The next file to try for a tensor."""
        for span in self._spans.get((name, entry.dtype, entry.shape), ()):
            if span.size_bytes == entry.size_bytes and (span, entry.sha256) not in self._wrong:
                return span
        return None

    def _scan(self) -> dict[TensorKey, list[LocalSpan]]:
        headers: dict[tuple[Path, int, int], dict[TensorKey, LocalSpan]] = {}
        spans: dict[TensorKey, list[LocalSpan]] = {}
        tensors = 0
        for path in self._files():
            try:
                status = path.stat()
                key = (path, status.st_size, status.st_mtime_ns)
                headers[key] = self._headers[key] if key in self._headers else read_spans(path)
            except OSError as error:
                log.warning("a local model file cannot be read", path=str(path), why=str(error))
                continue
            tensors += len(headers[key])
            if tensors > TENSORS_MAX:
                log.warning("local folders hold more tensors than are looked at", tensors_max=TENSORS_MAX)
                break
            for tensor, span in headers[key].items():
                spans.setdefault(tensor, []).append(span)
        self._headers = headers
        return spans

    def _files(self) -> Iterator[Path]:
        """Every safetensors file below the folders; linked folders are not entered, so that none is without end."""
        count = 0
        for folder in self._folders:
            if not folder.is_dir():
                log.warning("a local model folder is not there", path=str(folder))
            for parent, _, names in os.walk(folder):
                for name in sorted(names):
                    if name.endswith(".safetensors"):
                        count += 1
                        if count > FILES_MAX:
                            log.warning("local folders hold more files than are looked at", files_max=FILES_MAX)
                            return
                        yield Path(parent, name)


def _read(span: LocalSpan, offset: int, byte_count: int) -> bytes:
    """Some bytes of a tensor. Raises Unavailable when the file is not there, or shorter than it was."""
    try:
        with open_plain(span.path) as file:
            file.seek(span.begin + offset)
            payload = b""
            while len(payload) < byte_count and (step := file.read(byte_count - len(payload))):
                payload += step
    except OSError as error:
        raise Unavailable(f"{span.path} cannot be read: {error.strerror or error}") from error
    if len(payload) != byte_count:
        raise Unavailable(f"{span.path} is shorter than it was")
    return payload
