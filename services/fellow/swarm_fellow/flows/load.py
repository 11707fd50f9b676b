"""One LOAD: fetch the slice, make room, start the process, build, or take a cover. Undone whole when a step fails."""

import asyncio

import structlog
from silentswarm.core.v1 import stage_pb2
from silentswarm.fellow.v1 import fellow_link_pb2 as link_pb2
from swarm_core.errors import Cancelled, Conflict

from swarm_fellow.flows.building import LoadProgress, StageBuilder
from swarm_fellow.flows.covers import Covers
from swarm_fellow.flows.stages import HeldStage, StageTable
from swarm_fellow.rpc.convert import describe_stage, is_same_stage

log = structlog.get_logger()


class Loader:
    """Loads stages, one load a placement at a time."""

    def __init__(self, table: StageTable, builder: StageBuilder, covers: Covers) -> None:
        self._table = table
        self._builder = builder
        self._covers = covers
        self._loading: dict[str, asyncio.Task[link_pb2.LoadDone]] = {}
        self._called_off: set[asyncio.Task] = set()

    async def load(self, signal: link_pb2.LoadSignal, progress: LoadProgress) -> link_pb2.LoadDone:
        """Fetch, start and build one stage; the placement that is held already answers at once.

        Raises what SliceFetcher.fetch raises, LoadFailed or StageFailed with what the process said, Conflict (another
        stage of this placement is here), CapabilityMissing (it is to hold more sessions than this fellow declared),
        BadRequest (devices that are not here, or do not hold each layer once), Cancelled (unloaded meanwhile).
        Cancelling it undoes it.
        """
        spec = signal.spec
        held = self._table.find(spec.placement_id)
        if held:
            return _answer_again(held, spec)
        if spec.placement_id in self._loading:
            raise Conflict(f"placement {spec.placement_id} is being loaded already", placement=spec.placement_id)
        self._builder.check(signal)  # refused before anything is fetched
        work = asyncio.create_task(self._load(signal, progress))
        self._loading[spec.placement_id] = work
        try:
            return await work
        except asyncio.CancelledError:
            if work in self._called_off:
                raise Cancelled(f"{describe_stage(spec)} was unloaded while it was loading") from None
            raise
        finally:
            self._called_off.discard(work)
            del self._loading[spec.placement_id]

    async def call_off(self, placement_id: str | None = None) -> None:
        """Give up the load of a placement, or every load; their stages are left to StageTable.end_placement."""
        loads = [work for key, work in self._loading.items() if placement_id in (None, key)]
        for work in loads:
            self._called_off.add(work)
            work.cancel()
        if loads:
            await asyncio.wait(loads)

    async def _load(self, signal: link_pb2.LoadSignal, progress: LoadProgress) -> link_pb2.LoadDone:
        spec = signal.spec
        covered = await self._take_cover(spec)
        if covered is not None:
            return _answer_again(covered, spec)
        log.info("load begins", stage=describe_stage(spec))
        fetched = await self._builder.fetch(spec, progress)
        progress("start", 0, 1)
        try:
            stage = await self._table.admit(spec)
        except BaseException:
            fetched.use.release()
            raise
        stage.on_gone = fetched.use.release
        progress("start", 1, 1)
        try:
            done = await self._builder.build(stage, fetched, signal, progress)
            self._table.mark_loaded(stage, done)
        except BaseException as error:
            if not isinstance(error, Exception):
                self._table.begin_end(stage, "was given up")  # the result is due now; the end goes on by itself
                raise
            why = await self._builder.explain(stage, error)
            await self._table.end(stage, "failed to load")
            if why is error:
                raise
            raise why from error
        await self._covers.end(spec.placement_id, spec.stage_index)  # a warm one; the stage keeps its files now
        log.info("load done", stage=describe_stage(spec), fetched_bytes=done.fetched_bytes)
        return done

    async def switch_in(self, placement_id: str, stage_index: int, epoch: int) -> HeldStage | None:
        """Make the hot cover of a stage the stage itself, in this epoch; None when there is no such cover.

        Raises Conflict when another stage of this placement is here.
        """
        if self._covers.find_hot(placement_id, stage_index) is None:
            return None
        await self._table.wait_ended(placement_id)
        return self._adopt(self._covers.take(placement_id, stage_index), epoch)

    async def _take_cover(self, spec: stage_pb2.StageSpec) -> HeldStage | None:
        """The hot cover of this very stage, as a stage; one that does not fit any more is ended for its memory."""
        if self._covers.find_hot(spec.placement_id, spec.stage_index) is None:
            return None
        await self._table.wait_ended(spec.placement_id)
        hot = self._covers.find_hot(spec.placement_id, spec.stage_index)  # it may have ended, or be another one now
        if hot is None:
            return None
        if not is_same_stage(hot.spec, spec):
            await self._covers.end(spec.placement_id, spec.stage_index)
            return None
        return self._adopt(self._covers.take(spec.placement_id, spec.stage_index), spec.epoch)

    def _adopt(self, stage: HeldStage | None, epoch: int) -> HeldStage | None:
        if stage is not None:
            stage.spec.epoch = epoch
            self._table.adopt(stage)
        return stage


def _answer_again(held: HeldStage, spec: stage_pb2.StageSpec) -> link_pb2.LoadDone:
    """The answer of the first load, with nothing fetched. Raises Conflict when it was another stage."""
    same = (
        *("model_id", "stage_index", "stage_count", "layer_start", "layer_stop", "manifest_sha256"),
        *("weights_model_id", "adapters", "quantization", "storage_dtype"),
    )
    if any(getattr(held.spec, name) != getattr(spec, name) for name in same):
        raise Conflict(f"this fellow holds {describe_stage(held.spec)}", placement=spec.placement_id)
    answer = link_pb2.LoadDone()
    answer.CopyFrom(held.loaded)
    answer.fetched_bytes = 0
    return answer
