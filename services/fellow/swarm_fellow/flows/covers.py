"""Stages held outside of their rings: loaded (hot) or with their files kept (warm). Serves nothing, reaps nothing."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import structlog
from silentswarm.core.v1 import stage_pb2
from silentswarm.fellow.v1 import fellow_link_pb2 as link_pb2
from swarm_core.clock import Clock
from swarm_core.errors import BadRequest, Cancelled, Conflict, LoadFailed, Overloaded, SwarmError

from swarm_fellow.flows.building import LoadProgress, StageBuilder
from swarm_fellow.flows.stages import HeldStage, StageState, StageTable
from swarm_fellow.host.stage_process import StageHost
from swarm_fellow.host.weights.fetch import FetchedSlice
from swarm_fellow.rpc.convert import describe_stage, is_same_stage

log = structlog.get_logger()

COVERS_MAX = 16  # held by one fellow
REFRESH_TIMEOUT_S = 1.0
CoverKey = tuple[str, int]  # placement and stage


@dataclass(eq=False)
class _Cover:
    """One cover. stage: its process when it is hot. release: lets its files go."""

    spec: stage_pb2.StageSpec
    release: Callable[[], None]
    stage: HeldStage | None = None
    watch: asyncio.Task[None] | None = None

    def to_proto(self) -> link_pb2.HeldCover:
        if self.stage is None:
            return link_pb2.HeldCover(spec=self.spec, kind=link_pb2.COVER_KIND_WARM)
        loaded = self.stage.loaded
        return link_pb2.HeldCover(
            spec=self.spec,
            kind=link_pb2.COVER_KIND_HOT,
            ring_addresses=loaded.ring_addresses,
            weight_bytes=loaded.weight_bytes,
            kv_tokens_measured=loaded.kv_tokens_measured,
            memory_bytes=self.stage.status.memory_bytes,
        )


class Covers:
    """Every cover held, by placement and stage. They count as no model and are never idle. Belongs to one loop.

    silent_max_s: a hot one whose process leaves its status unanswered for this long is ended.
    """

    def __init__(
        self, host: StageHost, builder: StageBuilder, table: StageTable, clock: Clock, silent_max_s: float
    ) -> None:
        self._host = host
        self._builder = builder
        self._table = table
        self._clock = clock
        self._silent_max_s = silent_max_s
        self._held: dict[CoverKey, _Cover] = {}
        self._making: dict[CoverKey, asyncio.Task[link_pb2.CoverDone]] = {}
        self._called_off: set[asyncio.Task] = set()
        self._ends: set[asyncio.Task] = set()

    def held(self) -> list[link_pb2.HeldCover]:
        """All of them, for a heartbeat or a registration."""
        return [cover.to_proto() for cover in self._held.values()]

    def count(self) -> int:
        """How many are held or made."""
        return len(self._held.keys() | self._making.keys())

    def is_making(self) -> bool:
        """Whether one is being made now."""
        return bool(self._making)

    def memory_bytes(self) -> int:
        """Main memory that hot ones take, as they last said."""
        return sum(cover.stage.status.memory_bytes for cover in self._held.values() if cover.stage is not None)

    async def cover(self, signal: link_pb2.CoverSignal, progress: LoadProgress) -> link_pb2.CoverDone:
        """Hold a stage as asked; one that is held so, or better, answers at once. Cancelling it undoes it.

        Raises what a load raises, Conflict (the stage itself is here, or this cover is being made), Overloaded (16 are
        held), Cancelled (ended meanwhile).
        """
        spec, key = signal.spec, (signal.spec.placement_id, signal.spec.stage_index)
        if signal.kind not in (link_pb2.COVER_KIND_HOT, link_pb2.COVER_KIND_WARM):
            raise BadRequest("a cover is hot or warm", field="kind")
        self._builder.check(signal)
        held = self._held.get(key)
        suffices = held is not None and (held.stage is not None or signal.kind == link_pb2.COVER_KIND_WARM)
        if held is not None and suffices and is_same_stage(held.spec, spec):
            return link_pb2.CoverDone(cover=held.to_proto())
        if key in self._making:
            raise Conflict(f"a cover of {describe_stage(spec)} is being made already", placement=spec.placement_id)
        if self._table.holds(spec.placement_id):
            raise Conflict(f"this fellow holds a stage of placement {spec.placement_id}", placement=spec.placement_id)
        if self.count() >= COVERS_MAX and held is None:
            raise Overloaded(f"this fellow holds {COVERS_MAX} covers, which is the most")
        work = asyncio.create_task(self._make(signal, progress))
        self._making[key] = work
        try:
            return await work
        except asyncio.CancelledError:
            if work in self._called_off:
                raise Cancelled(f"the cover of {describe_stage(spec)} was ended while it was made") from None
            raise
        finally:
            self._called_off.discard(work)
            del self._making[key]

    async def end(self, placement_id: str | None = None, stage_index: int | None = None) -> None:
        """End one cover, those of a placement, or all, also while they are made; returns when their memory is back."""

        def is_meant(key: CoverKey) -> bool:
            return placement_id in (None, key[0]) and stage_index in (None, key[1])

        making = [work for key, work in self._making.items() if is_meant(key)]
        for work in making:
            self._called_off.add(work)
            work.cancel()
        if making:
            await asyncio.wait(making)
        await asyncio.gather(*(self._end(key, "was ended") for key in list(self._held) if is_meant(key)))

    def find_hot(self, placement_id: str, stage_index: int) -> HeldStage | None:
        """The stage of a hot cover."""
        cover = self._held.get((placement_id, stage_index))
        return cover.stage if cover is not None else None

    def take(self, placement_id: str, stage_index: int) -> HeldStage | None:
        """A hot cover that is to go into its ring: the caller's from now on. None when there is none."""
        stage = self.find_hot(placement_id, stage_index)
        if stage is not None:
            self._let_go((placement_id, stage_index))
            log.info("a cover takes its place in the ring", stage=describe_stage(stage.spec))
        return stage

    async def refresh(self) -> None:
        """Ask every hot one for its figures, for at most 1 s; one that is silent for too long is ended."""
        await asyncio.gather(*(self._refresh(key, cover) for key, cover in list(self._held.items())))

    async def _make(self, signal: link_pb2.CoverSignal, progress: LoadProgress) -> link_pb2.CoverDone:
        spec = stage_pb2.StageSpec()
        spec.CopyFrom(signal.spec)
        spec.epoch = 0
        key = (spec.placement_id, spec.stage_index)
        log.info("cover begins", stage=describe_stage(spec), hot=signal.kind == link_pb2.COVER_KIND_HOT)
        fetched = await self._builder.fetch(spec, progress)
        release = fetched.use.release
        try:
            stage = None
            if signal.kind == link_pb2.COVER_KIND_HOT:
                stage = await self._build(spec, fetched, signal, progress)
        except BaseException:
            release()
            raise
        if key in self._held:  # a warm one, or one of another stage
            self._begin_end(key, "was replaced")
        cover = _Cover(spec, release, stage)
        self._held[key] = cover
        if stage is not None:
            stage.on_gone = release
            cover.watch = asyncio.create_task(self._watch_exit(key, cover))
        log.info("cover done", stage=describe_stage(spec), fetched_bytes=fetched.fetched_bytes)
        return link_pb2.CoverDone(cover=cover.to_proto(), fetched_bytes=fetched.fetched_bytes)

    async def _build(
        self, spec: stage_pb2.StageSpec, fetched: FetchedSlice, signal: link_pb2.CoverSignal, progress: LoadProgress
    ) -> HeldStage:
        """A process that has built the stage, and is killed when that fails. The spare is left for loads."""
        stage = HeldStage(stage_pb2.StageStatus(spec=spec), order=0)
        label = f"{spec.model_id.replace('/', '--')}-cover-{spec.stage_index}"
        stage.process = process = await self._host.start(label, may_take_spare=False)
        stage.started.set()
        try:
            stage.loaded.CopyFrom(await self._builder.build(stage, fetched, signal, progress))
            await self._ask(stage)
            if process.has_ended:
                raise LoadFailed(f"the process of {describe_stage(spec)} {await process.wait()}")
        except BaseException as error:
            why = await self._builder.explain(stage, error) if isinstance(error, Exception) else error
            await asyncio.shield(self._host.kill(process))
            raise why from (None if why is error else error)
        return stage

    async def _ask(self, stage: HeldStage) -> bool:
        try:
            async with asyncio.timeout(REFRESH_TIMEOUT_S):
                status = await stage.client().status()
        except (SwarmError, TimeoutError):
            return False
        stage.status.memory_bytes, stage.silent_since_s = status.memory_bytes, None
        return True

    async def _refresh(self, key: CoverKey, cover: _Cover) -> None:
        stage = cover.stage
        if stage is None or await self._ask(stage) or self._held.get(key) is not cover:
            return
        now_s = self._clock.monotonic_s()
        stage.silent_since_s = stage.silent_since_s if stage.silent_since_s is not None else now_s
        if now_s - stage.silent_since_s >= self._silent_max_s:
            stage.has_crashed = True
            self._begin_end(key, f"did not answer for {self._silent_max_s:g} s")

    async def _watch_exit(self, key: CoverKey, cover: _Cover) -> None:
        assert cover.stage is not None and cover.stage.process is not None
        how = await cover.stage.process.wait()
        if self._held.get(key) is cover:
            cover.stage.has_crashed = True
            self._begin_end(key, how)

    def _let_go(self, key: CoverKey) -> _Cover:
        cover = self._held.pop(key)
        if cover.watch is not None and cover.watch is not asyncio.current_task():
            cover.watch.cancel()
        return cover

    def _begin_end(self, key: CoverKey, why: str) -> asyncio.Task[None]:
        """Take a cover off the list now and end its process beside us."""
        cover = self._let_go(key)
        ending = asyncio.create_task(self._finish(cover, why))
        self._ends.add(ending)
        ending.add_done_callback(self._ends.discard)
        return ending

    async def _end(self, key: CoverKey, why: str) -> None:
        if key in self._held:
            await asyncio.shield(self._begin_end(key, why))

    async def _finish(self, cover: _Cover, why: str) -> None:
        stage = cover.stage
        if stage is not None and stage.process is not None:
            stage.state = StageState.ENDING
            end = self._host.kill if stage.has_crashed else self._host.stop
            await end(stage.process)
        cover.release()
        log.info("cover ended", stage=describe_stage(cover.spec), why=why)
