"""The Transfer service: bytes of tensors and small files to fellows, from any offset. The fellow verifies hashes."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
from silentswarm.fellow.v1 import transfer_pb2, transfer_pb2_grpc
from swarm_core.errors import BadRequest, Conflict, Overloaded, ServableCorrupt
from swarm_core.manifest import Manifest

from swarm_leader.catalog.disk import find_file, read_range
from swarm_leader.domain.ports import Catalog

CHUNK_BYTES = 2**20
FETCHES_MAX = 64  # each holds one chunk in memory and waits for one reader; more only share the same disk
TAKE_TIMEOUT_S = 60.0  # a fellow that takes no chunk for so long gives its place to others, and resumes later
ITEMS_MAX = 20_000  # a whole model of a hundred layers has some thousand tensors


@dataclass(frozen=True)
class Span:
    """What to send of one item. begin: position in the file; offset: position in the item."""

    item: int
    file: str
    begin: int
    offset: int
    size_bytes: int


class TransferServicer(transfer_pb2_grpc.TransferServicer):
    """Reads one chunk at a time, in a thread, and only as fast as the fellow takes them.

    check: raises when whoever calls may not have this model.
    """

    def __init__(
        self,
        catalog: Catalog,
        fetches_max: int = FETCHES_MAX,
        take_timeout_s: float = TAKE_TIMEOUT_S,
        check: Callable[[str], None] = lambda model_id: None,
    ) -> None:
        self._catalog = catalog
        self._fetches_max = fetches_max
        self._take_timeout_s = take_timeout_s
        self._check = check
        self._fetches = 0

    async def GetManifest(
        self, request: transfer_pb2.GetManifestRequest, context: grpc.aio.ServicerContext
    ) -> transfer_pb2.GetManifestResponse:
        self._check(request.model_id)
        await asyncio.to_thread(self._catalog.refresh)
        return transfer_pb2.GetManifestResponse(
            manifest_json=self._catalog.manifest_json(request.model_id),
            manifest_sha256=self._catalog.manifest_sha256(request.model_id),
        )

    async def Fetch(
        self, request: transfer_pb2.FetchRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[transfer_pb2.FetchChunk]:
        self._check(request.model_id)
        if self._fetches >= self._fetches_max:
            raise Overloaded(f"{self._fetches} fetches are running, which is the most at once", running=self._fetches)
        self._fetches += 1
        try:
            sha256 = self._catalog.manifest_sha256(request.model_id)
            if sha256 != request.manifest_sha256:
                raise Conflict(
                    f"model {request.model_id} has another manifest now; ask for it again", manifest_sha256=sha256
                )
            folder = self._catalog.folder(request.model_id)
            for span in plan_spans(self._catalog.get(request.model_id), request):
                for begin, size_bytes in chunks_of(span.size_bytes):
                    data = await asyncio.to_thread(_read, folder, span.file, span.begin + begin, size_bytes)
                    with _must_take_within(self._take_timeout_s):
                        yield transfer_pb2.FetchChunk(item=span.item, offset=span.offset + begin, data=data)
        finally:
            self._fetches -= 1


@contextmanager
def _must_take_within(seconds: float) -> Iterator[None]:
    """End the call when the reader does not take what is yielded inside; a call has no other deadline on writes."""
    task = asyncio.current_task()
    assert task is not None
    timer = asyncio.get_running_loop().call_later(seconds, task.cancel)
    try:
        yield
    finally:
        timer.cancel()


def plan_spans(manifest: Manifest, request: transfer_pb2.FetchRequest) -> list[Span]:
    """What to read for a request, in its order; an offset at the very end asks for nothing.

    Raises BadRequest, before anything is sent, for a name the manifest lacks, an offset beyond the end, or a tensor
    that is not here but on a hub (facts: repository, commit, endpoint).
    """
    if len(request.items) > ITEMS_MAX:
        raise BadRequest(f"{len(request.items)} items in one fetch; at most {ITEMS_MAX}", field="items")
    return [_span(manifest, index, item) for index, item in enumerate(request.items)]


def chunks_of(size_bytes: int) -> list[tuple[int, int]]:
    """(begin, size) of every chunk: 1 MiB each, the last one what is left."""
    return [(begin, min(CHUNK_BYTES, size_bytes - begin)) for begin in range(0, size_bytes, CHUNK_BYTES)]


def _span(manifest: Manifest, index: int, item: transfer_pb2.FetchItem) -> Span:
    kind = item.WhichOneof("what")
    if kind == "tensor" and item.tensor in manifest.tensors and manifest.origin is not None:
        origin = manifest.origin
        raise BadRequest(
            f"item {index}: the leader does not have the weights of {manifest.model_id}; a fellow fetches them from "
            f"{origin.repository} at {origin.commit} itself, if its release can",
            field="items",
            repository=origin.repository,
            commit=origin.commit,
            endpoint=origin.endpoint,
        )
    if kind == "tensor" and item.tensor in manifest.tensors:
        tensor = manifest.tensors[item.tensor]
        file, begin, size_bytes = tensor.file, tensor.begin, tensor.size_bytes
    elif kind == "file" and item.file in manifest.files:
        file, begin, size_bytes = item.file, 0, manifest.files[item.file].size_bytes
    else:
        name = getattr(item, kind)[:200] if kind else ""
        raise BadRequest(
            f"item {index}: model {manifest.model_id} has no {kind or 'tensor or file'} {name!r}", field="items"
        )
    if item.offset > size_bytes:
        raise BadRequest(f"item {index}: offset {item.offset} is beyond its {size_bytes} bytes", field="items")
    return Span(index, file, begin + item.offset, item.offset, size_bytes - item.offset)


def _read(folder: Path, file: str, begin: int, size_bytes: int) -> bytes:
    """One chunk; the file is opened anew each time, so that a cancelled fetch leaves nothing open."""
    try:
        return read_range(find_file(folder, file), begin, size_bytes)
    except OSError as error:
        raise ServableCorrupt(f"{file} cannot be read: {error.strerror or error}") from error
