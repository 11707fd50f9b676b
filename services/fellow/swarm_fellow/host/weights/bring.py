"""Brings pieces to disk from the sources in their order, over breaks, until every byte is verified. Plans no slice."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

import structlog
from swarm_core.clock import Clock
from swarm_core.errors import BadFrame, DiskFull, HashMismatch, Reason, RemoteError, SwarmError, Unavailable

from swarm_fellow.domain.backoff import Draw, redial_delay_s
from swarm_fellow.host.weights.cache import Part, Piece
from swarm_fellow.host.weights.proven import ProvenTensors
from swarm_fellow.host.weights.sources import Chunk, ModelBytes, NearSource, Source, Wanted

log = structlog.get_logger()
T = TypeVar("T")

STALL_S = 300.0  # no byte for this long, over all tries: the load fails instead of hanging
PARTS_OPEN_MAX = 64  # pieces claimed, and asked for in one stream, at once
NEAR_PROGRESS_BYTES = 2**16  # less between two breaks is no progress where another source can be asked
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


@dataclass
class Run:
    """One fetch in progress.

    models: whose bytes each piece is, by its path. received_bytes: from any source; fetched_bytes: over the network.
    given_up: sources asked no more, by name. troubles: what went wrong with a source that is not the last, by its name.
    """

    models: Mapping[Path, ModelBytes]
    total_bytes: int
    progress: FetchProgress
    here_bytes: int = 0
    received_bytes: int = 0
    fetched_bytes: int = 0
    given_up: set[str] = field(default_factory=set)
    troubles: dict[str, str] = field(default_factory=dict)

    def add(self, byte_count: int) -> None:
        """So many more bytes are here."""
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


class PieceBringer:
    """Brings pieces to disk. Safe to use for several loads at once, also beside other fellows on the same cache.

    near: asked for tensors, in this order; what one does not have, or cannot bring, is left to the next.
    last: asked for the rest; its refusal is the load's.
    """

    def __init__(self, near: Sequence[NearSource], last: Source, clock: Clock, draw: Draw) -> None:
        self._near = tuple(near)
        self._last = last
        self._clock = clock
        self._draw = draw
        self._proven = ProvenTensors()
        self.fetched_bytes = 0  # that came over the network since the start

    async def bring(self, pieces: list[Piece], run: Run) -> None:
        """Return once every piece is complete.

        Raises HashMismatch (wrong bytes from the last source, twice), DiskFull, Unavailable (8 tries or 300 s without a
        byte), or what the last source answers.
        """
        await self._prove(pieces, run)
        missing = await asyncio.to_thread(_missing, pieces)
        run.add(run.total_bytes - sum(piece.size_bytes for piece in missing) - run.here_bytes)
        stall = _Stall(self._clock)
        while missing:
            asked = missing[:PARTS_OPEN_MAX]
            parts = await take(partial(_claim, asked), _release)
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

    async def _prove(self, pieces: Sequence[Piece], run: Run) -> None:
        """Drop what is in the cache and no longer what it was when it came: it is then missing, and fetched again."""
        for piece in await asyncio.to_thread(self._unproven, pieces):
            if await asyncio.to_thread(self._proven.prove, piece):
                run.add(piece.size_bytes)
            else:
                log.warning("a cached tensor is not what it was any more", name=piece.name, path=str(piece.path))

    def _unproven(self, pieces: Sequence[Piece]) -> list[Piece]:
        return [piece for piece in pieces if piece.is_tensor and piece.is_complete() and not self._proven.knows(piece)]

    async def _fill(self, parts: Sequence[Part], run: Run) -> None:
        """Ask one source after the other until every part is finished."""
        for part in parts:  # an earlier run may have left all bytes of one
            if part.is_full and not await asyncio.to_thread(self._finish, part):
                run.add(-part.piece.size_bytes)
        by_model: dict[str, list[Part]] = {}
        for part in parts:
            by_model.setdefault(run.models[part.piece.path].manifest_sha256, []).append(part)
        for own in by_model.values():
            model = run.models[own[0].piece.path]
            for source in self._near:
                if source.name not in run.given_up:
                    await self._fill_or_give_up(source, model, own, run)
            await self._fill_at_last(model, own, run)

    async def _fill_or_give_up(self, source: NearSource, model: ModelBytes, parts: Sequence[Part], run: Run) -> None:
        """As much as this source has; what goes wrong with it is remembered, and left to the next one."""
        try:
            tensors = [part for part in parts if part.piece.is_tensor and not part.is_finished]
            here = await source.tensors_here(model, [part.piece.name for part in tensors])
            await self._fill_from(source, model, [part for part in tensors if part.piece.name in here], run)
        except DiskFull:
            raise
        except SwarmError as error:
            log.warning("a source is given up", source=source.name, model=model.model_id, why=error.message)
            run.given_up.add(source.name)
            run.troubles[source.name] = error.message

    async def _fill_at_last(self, model: ModelBytes, parts: Sequence[Part], run: Run) -> None:
        """The rest, from the source whose refusal counts; what went wrong before is said with it."""
        try:
            await self._fill_from(self._last, model, parts, run)
        except DiskFull:
            raise
        except SwarmError as error:
            if not run.troubles:
                raise
            before = "; ".join(f"{name}: {why}" for name, why in run.troubles.items())
            raise RemoteError(error.why, f"{error.message} (asked before: {before})", **error.facts) from error

    async def _fill_from(self, source: Source, model: ModelBytes, parts: Sequence[Part], run: Run) -> None:
        """Stream until every part is finished, or refused; begin again from where a stream broke."""
        failures, progress_s = 0, self._clock.monotonic_s()
        refused: set[Part] = set()
        for part in parts:
            part.mismatches = 0  # those of another source
        while unfinished := [part for part in parts if not part.is_finished and part not in refused]:
            before = run.received_bytes
            cut = await self._stream_once(source, model, unfinished, run, refused)
            now_s = self._clock.monotonic_s()
            if run.received_bytes - before >= (1 if source is self._last else NEAR_PROGRESS_BYTES):
                failures, progress_s = 0, now_s
            if cut is None:
                continue
            failures += 1
            if failures >= source.tries_max or now_s - progress_s > STALL_S:
                raise Unavailable(
                    f"{source.name} sent no more of {unfinished[0].piece.name} in {failures} tries over "
                    f"{now_s - progress_s:.0f} s: {cut.message}",
                    name=unfinished[0].piece.name,
                    tries=failures,
                ) from cut
            log.info("a transfer broke off and goes on", source=source.name, failures=failures, why=cut.message)
            await asyncio.sleep(redial_delay_s(failures, self._draw()))

    async def _stream_once(
        self, source: Source, model: ModelBytes, parts: Sequence[Part], run: Run, refused: set[Part]
    ) -> SwarmError | None:
        """One stream of all that these parts lack. Returns what cut it short, None when it brought everything."""
        wanted = [Wanted(part.piece.name, part.piece.is_tensor, part.received_bytes) for part in parts]
        mismatches = [part.mismatches for part in parts]
        try:
            async with contextlib.aclosing(source.fetch(model, wanted)) as chunks:
                async for chunk in chunks:
                    part = _part_of(parts, chunk, source)
                    await asyncio.to_thread(part.append, chunk.payload)
                    self._count(source, len(chunk.payload), run)
                    if part.is_full:
                        await self._verify(source, model, part, run, refused)
        except SwarmError as error:
            if error.why not in RETRYABLE:
                raise
            return error
        for part, before in zip(parts, mismatches, strict=True):
            if part.is_full and not part.is_finished:  # an empty one gets no chunk
                await self._verify(source, model, part, run, refused)
            if not part.is_finished and part.mismatches == before:
                return Unavailable(f"the stream ended before {part.piece.name} was whole")
        return None

    def _finish(self, part: Part) -> bool:
        """As Part.finish."""
        if not part.finish():
            return False
        if part.piece.is_tensor:
            self._proven.remember(part.piece)
        return True

    def _count(self, source: Source, byte_count: int, run: Run) -> None:
        run.received_bytes += byte_count
        if source.crosses_network:
            run.fetched_bytes += byte_count
            self.fetched_bytes += byte_count
        run.add(byte_count)

    async def _verify(self, source: Source, model: ModelBytes, part: Part, run: Run, refused: set[Part]) -> None:
        """Name a part whose bytes are all here and right; wrong ones are dropped, to be asked for again or elsewhere.

        Raises HashMismatch when the last source gives no right ones.
        """
        if await asyncio.to_thread(self._finish, part):
            return
        name = part.piece.name
        again = source.may_ask_again(model, name, part.mismatches)
        log.warning("wrong bytes are dropped", source=source.name, model=model.model_id, name=name, asked_again=again)
        run.add(-part.piece.size_bytes)
        if again:
            return
        refused.add(part)
        words = (
            f"{name} came {_times(part.mismatches)} with wrong bytes from {source.name}: SHA-256 {part.found_sha256} "
            f"instead of {part.piece.sha256}"
        )
        if source is not self._last:
            run.troubles[source.name] = words
            return
        await asyncio.to_thread(part.discard)
        raise HashMismatch(
            f"{words}. That copy is damaged; import the model again.",
            name=name,
            expected_sha256=part.piece.sha256,
            found_sha256=part.found_sha256,
        )


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def _part_of(parts: Sequence[Part], chunk: Chunk, source: Source) -> Part:
    """The part a chunk continues. Raises BadFrame when it continues none."""
    if chunk.item < len(parts):
        part = parts[chunk.item]
        fits = part.received_bytes + len(chunk.payload) <= part.piece.size_bytes
        if chunk.payload and chunk.offset == part.received_bytes and fits and not part.is_finished:
            return part
    raise BadFrame(f"{source.name} sent bytes nobody asked for: item {chunk.item}, offset {chunk.offset}")


def _missing(pieces: Sequence[Piece]) -> list[Piece]:
    return [piece for piece in pieces if not piece.is_complete()]


def _part_bytes(pieces: Sequence[Piece]) -> int:
    """Bytes of these that lie in parts now, whoever fetches them."""
    total = 0
    for piece in pieces:
        with contextlib.suppress(FileNotFoundError):
            total += piece.part_path.stat().st_size
    return total


async def take(take_it: Callable[[], T], give_back: Callable[[T], None]) -> T:
    """Take something in a thread; a load that is cancelled meanwhile leaves nothing taken behind."""
    taking = asyncio.ensure_future(asyncio.to_thread(take_it))

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
