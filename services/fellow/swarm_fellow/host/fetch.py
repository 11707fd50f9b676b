"""Fetches what a stage needs and the cache lacks, over breaks, until every byte is verified. Decides no placement."""

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

import structlog
from swarm_core.clock import Clock
from swarm_core.errors import BadFrame, BadRequest, HashMismatch, Reason, SwarmError, Unavailable
from swarm_core.manifest import Manifest, manifest_from_json, manifest_sha256
from swarm_core.slices import LayerRange, slice_tensors

from swarm_fellow.domain.backoff import Draw, redial_delay_s
from swarm_fellow.host.cache import ModelCache, Part, Piece
from swarm_fellow.host.cache_room import CacheRoom, CacheUse

log = structlog.get_logger()
T = TypeVar("T")

TRIES_WITHOUT_PROGRESS_MAX = 8
STALL_S = 300.0  # no byte for this long, over all tries: the load fails instead of hanging
PARTS_OPEN_MAX = 64  # pieces claimed, and asked for in one stream, at once
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)
OTHER_POLL_S = 0.1  # how often to look whether another load has finished a piece we both need
RETRYABLE = {
    Reason.UNAVAILABLE,
    Reason.DEADLINE,
    Reason.LINK_BROKEN,
    Reason.CANCELLED,
    Reason.OVERLOADED,
    Reason.INTERNAL,
    Reason.BAD_FRAME,
}

# Told (bytes here, bytes of the slice).
FetchProgress = Callable[[int, int], None]


@dataclass(frozen=True)
class Wanted:
    """One item of a fetch: a tensor's or a file's name and the first byte wanted."""

    name: str
    is_tensor: bool
    offset: int


@dataclass(frozen=True)
class Chunk:
    """Some bytes of the item at this position of the request."""

    item: int
    offset: int
    payload: bytes


class Source(Protocol):
    """Where bytes come from; rpc.transfer asks the leader. Every wait inside has a deadline."""

    async def manifest(self, model_id: str) -> bytes:
        """The manifest's JSON. Raises SwarmError."""

    def fetch(self, model_id: str, manifest_sha256: str, wanted: Sequence[Wanted]) -> AsyncGenerator[Chunk, None]:
        """The bytes asked for, in order. Raises SwarmError."""


@dataclass(frozen=True)
class FetchedSlice:
    """A slice on disk. tensor_files: checkpoint name -> file. fetched_bytes: what came over the network for it.

    use: keeps the files on disk until it is released.
    """

    manifest: Manifest
    model_dir: Path
    tensor_files: dict[str, Path]
    fetched_bytes: int
    use: CacheUse


@dataclass
class _Run:
    """One fetch in progress."""

    model_id: str
    manifest_sha256: str
    total_bytes: int
    progress: FetchProgress
    here_bytes: int = 0
    fetched_bytes: int = 0

    def add(self, byte_count: int) -> None:
        self.here_bytes += byte_count
        self.progress(self.here_bytes, self.total_bytes)


class _Stall:
    """Watches a download that another load of this machine holds: as long as it grows, it is worth waiting for."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen_bytes = -1
        self._seen_s = clock.monotonic_s()

    def check(self, seen_bytes: int, name: str) -> None:
        """Raises Unavailable when nothing came for 300 s."""
        now_s = self._clock.monotonic_s()
        if seen_bytes != self._seen_bytes:
            self._seen_bytes, self._seen_s = seen_bytes, now_s
        elif now_s - self._seen_s > STALL_S:
            raise Unavailable(f"another load on this machine holds {name} and got no byte for {STALL_S:g} s", name=name)


class SliceFetcher:
    """Brings slices to disk. Safe to use for several loads at once, also beside other fellows on the same cache."""

    def __init__(self, source: Source, cache: ModelCache, room: CacheRoom, clock: Clock, draw: Draw) -> None:
        self._source = source
        self._cache = cache
        self._room = room
        self._clock = clock
        self._draw = draw
        self.fetched_bytes = 0  # that came over the network since the start

    async def fetch(
        self, model_id: str, manifest_sha: str, layer_start: int, layer_stop: int, progress: FetchProgress
    ) -> FetchedSlice:
        """Bring exactly the tensors of these layers (half open) and the model's small files to disk.

        Raises HashMismatch (the manifest or a tensor is not what was promised, also when fetched again), DiskFull,
        ServableCorrupt, Unavailable (8 tries or 300 s without a byte), or what the leader answers.
        """
        manifest_json, is_kept = await self._manifest(model_id, manifest_sha)
        manifest = await asyncio.to_thread(manifest_from_json, manifest_json)
        if not 0 <= layer_start < layer_stop <= manifest.layer_count:
            raise BadRequest(
                f"layers {layer_start} to {layer_stop} do not exist: {model_id} has {manifest.layer_count}",
                field="layer_stop",
            )
        names = slice_tensors(manifest, LayerRange(layer_start, layer_stop, manifest.layer_count))
        tensors = {name: self._cache.tensor(name, manifest.tensors[name]) for name in names}
        files = [self._cache.file(manifest_sha, name, entry) for name, entry in manifest.files.items()]
        # Equal tensors are fetched once.
        pieces = list({piece.path: piece for piece in (*files, *tensors.values())}.values())
        run = _Run(model_id, manifest_sha, sum(piece.size_bytes for piece in pieces), progress)
        use = await _take(lambda: self._room.reserve(pieces), CacheUse.release)
        try:
            if not is_kept:  # only now: there may have been no room for it
                await asyncio.to_thread(self._cache.write_manifest, manifest_sha, manifest_json)
            await self._bring(pieces, run)
        except BaseException:
            use.release()
            raise
        return FetchedSlice(
            manifest=manifest,
            model_dir=self._cache.model_dir(manifest_sha),
            tensor_files={name: piece.path for name, piece in tensors.items()},
            fetched_bytes=run.fetched_bytes,
            use=use,
        )

    async def _manifest(self, model_id: str, expected_sha256: str) -> tuple[bytes, bool]:
        """The manifest of this hash, and whether it lies in the cache."""
        if not _SHA256.fullmatch(expected_sha256):  # it names a folder of ours
            raise BadRequest(f"{expected_sha256[:100]!r} is not the SHA-256 of a manifest", field="manifest_sha256")
        manifest_json = await asyncio.to_thread(self._cache.read_manifest, expected_sha256)
        if manifest_json is not None:
            return manifest_json, True
        manifest_json = await self._fetch_manifest(model_id)
        found = manifest_sha256(manifest_json)
        if found != expected_sha256:
            raise HashMismatch(
                f"the leader's manifest of {model_id} has SHA-256 {found}, the load was planned from "
                f"{expected_sha256}; the model was imported again meanwhile, load it anew",
                expected_sha256=expected_sha256,
                found_sha256=found,
            )
        return manifest_json, False

    async def _fetch_manifest(self, model_id: str) -> bytes:
        for failures in range(1, TRIES_WITHOUT_PROGRESS_MAX + 1):
            try:
                return await self._source.manifest(model_id)
            except SwarmError as error:
                if error.why not in RETRYABLE or failures == TRIES_WITHOUT_PROGRESS_MAX:
                    raise
                await asyncio.sleep(redial_delay_s(failures, self._draw()))
        raise AssertionError("the last try returns or raises")

    async def _bring(self, pieces: list[Piece], run: _Run) -> None:
        missing = await asyncio.to_thread(_missing, pieces)
        run.add(run.total_bytes - sum(piece.size_bytes for piece in missing))
        stall = _Stall(self._clock)
        while missing:
            asked = missing[:PARTS_OPEN_MAX]
            parts = await _take(partial(_claim, asked), _release)
            try:
                run.add(sum(part.received_bytes for part in parts))
                await self._fill(parts, run)
            finally:
                _release(parts)
            still = await asyncio.to_thread(_missing, missing)
            ours = sum(part.piece.size_bytes for part in parts)
            run.add(sum(p.size_bytes for p in missing) - sum(p.size_bytes for p in still) - ours)
            if not parts and len(still) == len(missing):
                stall.check(await asyncio.to_thread(_part_bytes, asked), asked[0].name)
                await asyncio.sleep(OTHER_POLL_S)
            missing = still

    async def _fill(self, parts: Sequence[Part], run: _Run) -> None:
        """Stream until every part is finished; begin again from where a stream broke."""
        failures, progress_s = 0, self._clock.monotonic_s()
        await _finish_full(parts, run)
        while unfinished := [part for part in parts if not part.is_finished]:
            before = run.fetched_bytes
            cut = await self._stream_once(unfinished, run)
            now_s = self._clock.monotonic_s()
            if run.fetched_bytes > before:
                failures, progress_s = 0, now_s
            if cut is None:
                continue
            failures += 1
            if failures >= TRIES_WITHOUT_PROGRESS_MAX or now_s - progress_s > STALL_S:
                raise Unavailable(
                    f"the leader sent no more of {unfinished[0].piece.name} in {failures} tries over "
                    f"{now_s - progress_s:.0f} s: {cut.message}",
                    name=unfinished[0].piece.name,
                    tries=failures,
                ) from cut
            log.info("a transfer broke off and goes on", model=run.model_id, failures=failures, why=cut.message)
            await asyncio.sleep(redial_delay_s(failures, self._draw()))

    async def _stream_once(self, parts: Sequence[Part], run: _Run) -> SwarmError | None:
        """One stream of all that these parts lack. Returns what cut it short, None when it brought everything."""
        wanted = [Wanted(part.piece.name, part.piece.is_tensor, part.received_bytes) for part in parts]
        mismatches = [part.mismatches for part in parts]
        try:
            async with contextlib.aclosing(self._source.fetch(run.model_id, run.manifest_sha256, wanted)) as chunks:
                async for chunk in chunks:
                    part = _part_of(parts, chunk)
                    await asyncio.to_thread(part.append, chunk.payload)
                    run.fetched_bytes += len(chunk.payload)
                    self.fetched_bytes += len(chunk.payload)
                    run.add(len(chunk.payload))
                    if part.is_full:
                        await _finish_full([part], run)
        except SwarmError as error:
            if error.why not in RETRYABLE:
                raise
            return error
        for part, before in zip(parts, mismatches, strict=True):
            if not part.is_finished and part.mismatches == before:
                return Unavailable(f"the stream ended before {part.piece.name} was whole")
        return None


async def _finish_full(parts: Sequence[Part], run: _Run) -> None:
    """Verify and name every part whose bytes are all here. Raises HashMismatch the second time they are wrong."""
    for part in parts:
        if part.is_full and not part.is_finished and not await asyncio.to_thread(part.finish):
            log.warning("wrong bytes are fetched again", model=run.model_id, name=part.piece.name)
            run.add(-part.piece.size_bytes)


def _part_of(parts: Sequence[Part], chunk: Chunk) -> Part:
    """The part a chunk continues. Raises BadFrame when it continues none."""
    if chunk.item < len(parts):
        part = parts[chunk.item]
        fits = part.received_bytes + len(chunk.payload) <= part.piece.size_bytes
        if chunk.payload and chunk.offset == part.received_bytes and fits and not part.is_finished:
            return part
    raise BadFrame(f"the leader sent bytes nobody asked for: item {chunk.item}, offset {chunk.offset}")


def _missing(pieces: Sequence[Piece]) -> list[Piece]:
    return [piece for piece in pieces if not piece.is_complete()]


def _part_bytes(pieces: Sequence[Piece]) -> int:
    """Bytes of these that lie in parts now, whoever fetches them."""
    total = 0
    for piece in pieces:
        with contextlib.suppress(FileNotFoundError):
            total += piece.part_path.stat().st_size
    return total


async def _take(take: Callable[[], T], give_back: Callable[[T], None]) -> T:
    """Take something in a thread; a load that is cancelled meanwhile leaves nothing taken behind."""
    taking = asyncio.ensure_future(asyncio.to_thread(take))

    def undo(_: object) -> None:
        if not taking.cancelled() and taking.exception() is None:
            give_back(taking.result())

    try:
        return await asyncio.shield(taking)
    except asyncio.CancelledError:
        taking.add_done_callback(undo)
        raise


def _release(parts: Sequence[Part]) -> None:
    for part in parts:
        part.release()


def _claim(pieces: Sequence[Piece]) -> list[Part]:
    """Claims what is free of these; what others hold is waited for after our own, so nobody waits in a circle."""
    claimed: list[Part] = []
    try:
        for piece in pieces:
            part = Part.claim(piece)
            if part is not None:
                claimed.append(part)
    except BaseException:
        _release(claimed)
        raise
    return claimed
