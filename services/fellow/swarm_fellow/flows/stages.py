"""The stages this machine holds: room for one more, ends, crashes and idling. Loads, covers and serves nothing."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

import structlog
from silentswarm.core.v1 import stage_pb2
from silentswarm.fellow.v1 import fellow_link_pb2 as link_pb2
from swarm_core.clock import Clock
from swarm_core.errors import Conflict, LoadFailed, SwarmError

from swarm_fellow.domain.backoff import Draw, failures_after, redial_delay_s
from swarm_fellow.domain.capacity import Occupant, choose_evicted
from swarm_fellow.domain.idle import is_reapable, reap_interval_s
from swarm_fellow.host.stage_process import StageHost, StageProcess
from swarm_fellow.rpc.convert import describe_stage, stage_event

log = structlog.get_logger()

REFRESH_TIMEOUT_S = 1.0  # a stage that does not answer in time is reported with its last figures

# Told of every end and every broken link that no signal asked for.
EventSink = Callable[[link_pb2.ConnectRequest], object]


class StageState(StrEnum):
    """Where a held stage stands."""

    LOADING = "loading"
    LOADED = "loaded"
    ENDING = "ending"


@dataclass(frozen=True)
class StageLimits:
    """loaded_models_max: placements held at once. idle_unload_s: 0 never unloads.

    silent_max_s: a stage whose status is asked for in vain for this long counts as crashed.
    """

    loaded_models_max: int
    idle_unload_s: float
    silent_max_s: float


@dataclass(frozen=True)
class BrokenLink:
    """The link to a neighbour broke in this epoch."""

    epoch: int
    message: str
    peer_stage: int | None = None  # at its other end


@dataclass(eq=False)
class HeldStage:
    """One stage and its process.

    order: grows with every start. status: the newest figures; status.spec is the spec with the current epoch.
    is_reported: heartbeats carry it, from the end of its load until its memory is back.
    started: its process answers, or could not be started.
    end_kind: what to tell the leader at the end, when no signal asked for it. broken: its newest broken link.
    silent_since_s: when it first left its status unanswered; None while it answers. on_gone: called once it is gone.
    """

    status: stage_pb2.StageStatus
    order: int
    process: StageProcess | None = None
    state: StageState = StageState.LOADING
    loaded: link_pb2.LoadDone = field(default_factory=link_pb2.LoadDone)
    is_reported: bool = False
    has_crashed: bool = False
    end_reason: str = ""
    end_kind: link_pb2.StageEventKind = link_pb2.STAGE_EVENT_KIND_UNSPECIFIED
    started: asyncio.Event = field(default_factory=asyncio.Event)
    replies_open: int = 0
    broken: BrokenLink | None = None
    silent_since_s: float | None = None
    on_gone: Callable[[], None] | None = None
    watchers: list[asyncio.Task] = field(default_factory=list)
    ending: asyncio.Task | None = None

    @property
    def spec(self) -> stage_pb2.StageSpec:
        """What it holds, with the current epoch."""
        return self.status.spec

    def client(self):
        """The client of its process."""
        assert self.process is not None
        return self.process.client


class StageTable:
    """Every stage held, by placement; at most one a placement. Belongs to one event loop."""

    def __init__(self, host: StageHost, limits: StageLimits, clock: Clock, draw: Draw) -> None:
        self._host = host
        self._limits = limits
        self._clock = clock
        self._draw = draw
        self._stages: dict[str, HeldStage] = {}
        self._admitting = asyncio.Lock()
        self.starts = 0  # stages that were begun or taken over, since the start
        self._sink: EventSink | None = None
        self.last_end_crashed = False  # whether nobody asked for the last end of a stage
        self.crashes = 0  # stages that ended though nobody asked, since the start

    def report_to(self, sink: EventSink | None) -> None:
        """Tell this sink from now on; None tells nobody, and ends show in the next registration.

        A broken link shows in no registration, so every one of an epoch that is still current is told again.
        """
        self._sink = sink
        for stage in self.loaded():
            if stage.broken and stage.broken.epoch >= stage.spec.epoch:
                self._report_broken(stage, stage.broken)

    def find(self, placement_id: str) -> HeldStage | None:
        """The loaded stage of a placement."""
        stage = self._stages.get(placement_id)
        return stage if stage and stage.state is StageState.LOADED else None

    def holds(self, placement_id: str) -> bool:
        """Whether a stage of this placement is here, loading, loaded or ending."""
        return placement_id in self._stages

    def loaded(self) -> list[HeldStage]:
        """Stages that are loaded and stay."""
        return [stage for stage in self._stages.values() if stage.state is StageState.LOADED]

    def is_loading(self) -> bool:
        """Whether one is being loaded now."""
        return any(stage.state is StageState.LOADING for stage in self._stages.values())

    def statuses(self) -> list[stage_pb2.StageStatus]:
        """Newest known figures of every stage for a heartbeat: all that were loaded and whose end was not told yet.

        May be called from any thread.
        """
        return [stage.status for stage in list(self._stages.values()) if stage.is_reported]

    def memory_bytes(self) -> int:
        """Main memory the held stages take, as they last said."""
        return sum(status.memory_bytes for status in self.statuses())

    async def admit(self, spec: stage_pb2.StageSpec) -> HeldStage:
        """Make room, oldest out first, and start a process for a stage. Raises Conflict, LoadFailed, StageFailed.

        The stage is LOADING until mark_loaded; the caller ends it when its load fails.
        """
        async with self._admitting:
            present = self._stages.get(spec.placement_id)
            if present and present.state is StageState.ENDING:
                await self.end(present)
            elif present:
                raise Conflict(
                    f"{describe_stage(present.spec)} is {present.state} already", placement=spec.placement_id
                )
            await self._make_room(spec)
            self.starts += 1
            stage = HeldStage(stage_pb2.StageStatus(spec=spec), self.starts)
            self._stages[spec.placement_id] = stage
        label = f"{spec.model_id.replace('/', '--')}-stage-{spec.stage_index}"
        try:
            stage.process = await self._host.start(label)
        except BaseException:
            self._forget(stage)
            raise
        finally:
            stage.started.set()
        if stage.state is StageState.ENDING:  # evicted while its process was starting
            await self.end(stage)
            raise LoadFailed(f"{describe_stage(spec)} {stage.end_reason} before it was loaded")
        return stage

    async def _make_room(self, spec: stage_pb2.StageSpec) -> None:
        """End the oldest until one more fits. Raises LoadFailed while a killed process still holds the room."""
        room = self._limits.loaded_models_max - len(self._host.lingering())
        if room > 0:
            occupants = [Occupant(placement_id, held.order) for placement_id, held in self._stages.items()]
            for victim in [self._stages[placement_id] for placement_id in choose_evicted(occupants, room)]:
                await self.end(victim, f"made room for {spec.model_id}", link_pb2.STAGE_EVENT_KIND_EVICTED)
        lingering = self._host.lingering()
        if len(self._stages) + len(lingering) >= self._limits.loaded_models_max:
            raise LoadFailed(
                f"no room for {describe_stage(spec)}: {', '.join(lingering)} was killed and is not gone; a driver or a "
                "disk holds it, and its memory is not back. Wait, or restart the machine.",
                placement=spec.placement_id,
            )

    def mark_loaded(self, stage: HeldStage, done: link_pb2.LoadDone) -> None:
        """The load is over: the stage takes replies and is watched. Raises LoadFailed when it is ending."""
        if stage.state is not StageState.LOADING:
            raise LoadFailed(f"{describe_stage(stage.spec)} {stage.end_reason or 'ended'} before it was loaded")
        stage.loaded.CopyFrom(done)
        self._begin_service(stage)

    def adopt(self, stage: HeldStage) -> None:
        """A cover becomes a stage like any other, beside the models held: it has its memory already.

        The caller knows that no stage of its placement is here.
        """
        assert stage.spec.placement_id not in self._stages
        self.starts += 1
        stage.order = self.starts
        self._stages[stage.spec.placement_id] = stage
        self._begin_service(stage)

    def _begin_service(self, stage: HeldStage) -> None:
        stage.state = StageState.LOADED
        stage.is_reported = True
        stage.watchers = [asyncio.create_task(self._watch_exit(stage)), asyncio.create_task(self._watch_faults(stage))]

    def take_silence(self, stage: HeldStage, how: str) -> None:
        """A stage whose process does not answer: it is killed, and told as crashed. Nothing when it ends already."""
        self._crashed(stage, how)

    def begin_end(
        self,
        stage: HeldStage,
        reason: str = "was unloaded",
        kind: link_pb2.StageEventKind = link_pb2.STAGE_EVENT_KIND_UNSPECIFIED,
    ) -> asyncio.Task[None]:
        """Take a stage out of service now and end its process, killed after 10 s; a second call joins the first.

        kind: the event to tell the leader once the memory is back, when no signal asked for the end.
        """
        if stage.ending is None:
            if stage.state is StageState.LOADED:
                stage.end_kind = kind
            stage.state, stage.end_reason = StageState.ENDING, reason
            stage.ending = asyncio.create_task(self._finish(stage))
        return stage.ending

    async def end(
        self,
        stage: HeldStage,
        reason: str = "was unloaded",
        kind: link_pb2.StageEventKind = link_pb2.STAGE_EVENT_KIND_UNSPECIFIED,
    ) -> None:
        """begin_end, and wait until the memory is back, or 15 s. The end goes on when the caller is cancelled."""
        await asyncio.shield(self.begin_end(stage, reason, kind))

    async def end_all(self) -> None:
        """End every stage."""
        await asyncio.gather(*(self.end(stage, "was stopped") for stage in list(self._stages.values())))

    async def wait_ended(self, placement_id: str) -> None:
        """Wait for the end of a stage of this placement that is ending. Raises Conflict when it is not."""
        while (stage := self._stages.get(placement_id)) is not None:
            if stage.state is not StageState.ENDING:
                raise Conflict(f"{describe_stage(stage.spec)} is {stage.state} here", placement=placement_id)
            await self.end(stage)

    async def end_placement(self, placement_id: str) -> None:
        """End the stage of a placement, loading or loaded; fine when there is none."""
        stage = self._stages.get(placement_id)
        if stage:
            await self.end(stage)

    async def refresh(self) -> None:
        """Ask every loaded stage for its figures, all at once, for at most 1 s."""
        await asyncio.gather(*(self._refresh(stage) for stage in self.loaded()))

    async def reap_idle(self) -> None:
        """Unload what is idle, for ever. Returns at once when that is switched off."""
        while self._limits.idle_unload_s > 0:
            await asyncio.sleep(reap_interval_s(self._limits.idle_unload_s))
            await asyncio.gather(*(self._reap(stage) for stage in self.loaded()))

    async def _reap(self, stage: HeldStage) -> None:
        if not await self._refresh(stage) or stage.state is not StageState.LOADED:
            return
        # From here to end() nothing is awaited, so no reply can slip in between.
        figures = stage.status
        if is_reapable(figures.idle_s, figures.sessions, stage.replies_open, self._limits.idle_unload_s):
            reason = f"was unloaded after {figures.idle_s:.0f} s without a request"
            await self.end(stage, reason, link_pb2.STAGE_EVENT_KIND_IDLE_UNLOADED)

    async def _finish(self, stage: HeldStage) -> None:
        for watcher in stage.watchers:
            watcher.cancel()
        await stage.started.wait()  # StageHost.start has its own deadline
        if stage.process is not None and stage.has_crashed:
            await self._host.kill(stage.process)  # asking it to stop would take 10 s of one that hangs
        elif stage.process is not None:
            await self._host.stop(stage.process)
        # Forgotten and told in one step: no heartbeat in between can lack a stage whose end is not told yet.
        self._forget(stage)
        if stage.end_kind:
            self._report(stage, stage.end_kind, stage.end_reason)
        log.info(
            "stage ended",
            stage=describe_stage(stage.spec),
            placement=stage.spec.placement_id,
            why=stage.end_reason,
        )

    def _forget(self, stage: HeldStage) -> None:
        if self._stages.get(stage.spec.placement_id) is stage:
            del self._stages[stage.spec.placement_id]
            self.last_end_crashed = stage.has_crashed
        if stage.on_gone is not None:
            stage.on_gone()

    async def _refresh(self, stage: HeldStage) -> bool:
        try:
            async with asyncio.timeout(REFRESH_TIMEOUT_S):
                status = await stage.client().status()
        except (SwarmError, TimeoutError):
            self._end_when_silent(stage)
            return False
        stage.silent_since_s = None
        if status.spec.placement_id == stage.spec.placement_id:
            epoch = max(status.spec.epoch, stage.spec.epoch)
            # As the leader planned it, without what this fellow added: it knows its own plan again.
            status.spec.CopyFrom(stage.spec)
            status.spec.epoch = epoch
            stage.status = status
        return True

    def _end_when_silent(self, stage: HeldStage) -> None:
        """A process that lives and answers nothing would pass its old figures as live for ever."""
        now_s = self._clock.monotonic_s()
        if stage.silent_since_s is None:
            stage.silent_since_s = now_s
        if now_s - stage.silent_since_s >= self._limits.silent_max_s:
            self._crashed(stage, f"did not answer for {self._limits.silent_max_s:g} s")

    async def _watch_exit(self, stage: HeldStage) -> None:
        assert stage.process is not None
        self._crashed(stage, await stage.process.wait())

    async def _watch_faults(self, stage: HeldStage) -> None:
        """Links that break are told; an engine that breaks ends the process."""
        failures = 0
        while stage.state is StageState.LOADED and stage.process and not stage.process.has_ended:
            began_s = self._clock.monotonic_s()
            try:
                async for fault in stage.client().watch_faults():
                    if fault.kind == "engine":
                        self._crashed(stage, f"had an engine fault: {fault.message}")
                        return
                    if fault.kind == "link" and fault.epoch >= stage.spec.epoch:
                        peer_stage = fault.peer_stage if fault.HasField("peer_stage") else None
                        broken = BrokenLink(fault.epoch, fault.message, peer_stage)
                        if stage.broken is None or fault.epoch >= stage.broken.epoch:
                            stage.broken = broken
                        self._report_broken(stage, broken)
            except SwarmError as error:
                log.debug("fault watch broke off", stage=describe_stage(stage.spec), why=error.message)
            failures = failures_after(failures, self._clock.monotonic_s() - began_s)
            await asyncio.sleep(redial_delay_s(failures, self._draw()))

    def _crashed(self, stage: HeldStage, how: str) -> None:
        """The end nobody asked for: told at once, and no longer in heartbeats, while what is left of it is ended."""
        if stage.state is not StageState.LOADED:
            return
        log.error("stage crashed", stage=describe_stage(stage.spec), placement=stage.spec.placement_id, how=how)
        stage.is_reported, stage.has_crashed = False, True
        self.crashes += 1
        self._report(stage, link_pb2.STAGE_EVENT_KIND_CRASHED, f"the process of {describe_stage(stage.spec)} {how}")
        self.begin_end(stage, how)

    def _report_broken(self, stage: HeldStage, broken: BrokenLink) -> None:
        if self._sink is not None:
            kind = link_pb2.STAGE_EVENT_KIND_LINK_BROKEN
            self._sink(stage_event(stage.spec, kind, broken.message, broken.peer_stage))

    def _report(self, stage: HeldStage, kind: link_pb2.StageEventKind, message: str) -> None:
        if self._sink is not None:
            self._sink(stage_event(stage.spec, kind, message))
