"""A leader's healing over fellows in the same process, with every fault a fellow can have. For tests only."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from silentswarm.core.v1 import capabilities_pb2, hardware_pb2, reason_pb2, stage_pb2
from silentswarm.fellow.v1 import fellow_link_pb2 as link_pb2
from swarm_core.errors import FellowLost, SwarmError
from swarm_leader.config import LeaderConfig
from swarm_leader.domain.leases import Leases
from swarm_leader.domain.planning.plan import PlanRequest
from swarm_leader.domain.records import FellowRecord, PlacementState, Route, Transport
from swarm_leader.flows.board import Board
from swarm_leader.flows.draining import Draining
from swarm_leader.flows.ending import Ending
from swarm_leader.flows.faults import Faults
from swarm_leader.flows.gate import Gates
from swarm_leader.flows.healing_parts import Parts, make_healing
from swarm_leader.flows.link_keys import LinkKeys
from swarm_leader.flows.load import Loading
from swarm_leader.flows.recover import recover
from swarm_leader.flows.registry import Fellow, Held, Registry
from swarm_leader.flows.replacing import Replacing
from swarm_leader.flows.signals import ControlLink, Signals
from swarm_leader.flows.stage_load import StageLoading
from swarm_leader.flows.sweep import sweep_forever
from swarm_leader.flows.tasks import TaskSet
from swarm_leader.flows.wire import Wiring
from swarm_leader.relay.ticket import Tickets

from tests.unit.leader.model_facts import GIGABYTE, make_capabilities, make_manifest
from tests.unit.leader.virtual_time import VirtualClock, VirtualLoop

MODEL = "org/tiny"
MANIFEST = replace(make_manifest(layer_count=6, layer_elements=50_000_000), model_id=MODEL)
CRASHED, BROKEN = link_pb2.STAGE_EVENT_KIND_CRASHED, link_pb2.STAGE_EVENT_KIND_LINK_BROKEN
STEP_S = 0.05  # what anything a fellow does takes


LINE_UP, LINE_CUT, LINE_STALLED = "up", "cut", "stalled"  # to its neighbours and to the relay


class Disk:
    """What outlives the leader, with what must hold of it checked at every write. meanwhile: happens during each."""

    def __init__(self) -> None:
        self.placements: dict[str, Any] = {}
        self.incidents: dict[str, Any] = {}
        self.fellows: dict[str, FellowRecord] = {}
        self.owners: dict[tuple[str, int, int], str] = {}
        self.meanwhile: Callable[[], None] = lambda: None

    async def save(self, record: Any, what: str = "") -> None:
        """A placement, an incident or a fellow."""
        self.meanwhile()
        if isinstance(record, FellowRecord):
            self.fellows[record.fellow_id] = record
        elif hasattr(record, "incident_id"):
            self.incidents[record.incident_id] = record
        else:
            self._save_placement(record)

    def _save_placement(self, record: Any) -> None:
        known = self.placements.get(record.placement_id)
        assert known is None or record.epoch >= known.epoch, "an epoch went back"
        fellow_ids = [stage.fellow_id for stage in record.stages]
        assert len(set(fellow_ids)) == len(fellow_ids), "one fellow holds two stages"
        for stage in record.stages:
            key = (record.placement_id, record.epoch, stage.stage_index)
            assert self.owners.setdefault(key, stage.fellow_id) == stage.fellow_id, "two owners in one epoch"
        self.placements[record.placement_id] = record

    async def latest(self, model_id: str) -> Any:
        """The newest placement."""
        return max(self.placements.values(), key=lambda one: (one.epoch, one.created_s), default=None)

    async def open(self) -> list[Any]:
        """Placements."""
        newest = await self.latest(MODEL)
        return [newest] if newest is not None and newest.state is not PlacementState.UNLOADED else []

    async def all(self) -> list[FellowRecord]:
        """Fellows."""
        return list(self.fellows.values())


class OpenIncidents:
    """The incidents of a disk."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.save = disk.save

    async def open(self) -> list[Any]:
        """Those not over."""
        return [one for one in self._disk.incidents.values() if one.is_open]


class OneModel:
    """A catalog of one model."""

    def refresh(self) -> None:
        """It is always there."""

    def manifests(self) -> dict[str, Any]:
        """By id."""
        return {MODEL: MANIFEST}

    def get(self, model_id: str) -> Any:
        """Its manifest."""
        return self.manifests()[model_id]

    def manifest_sha256(self, model_id: str) -> str:
        """Never changes."""
        return "f" * 64


class NoReplies:
    """Nobody asks anything here."""

    def fail_placement(self, placement_id: str, why: SwarmError) -> None:
        """Nothing to fail."""


class SimFellow:
    """One machine. held: placement id -> what it holds, over breaks of its link; a process dies with what it holds."""

    def __init__(self, world: "World", name: str, free_bytes: int) -> None:
        self.world, self.name, self.fellow_id = world, name, f"id-{name}"
        self.free_bytes = free_bytes
        self.held: dict[str, stage_pb2.StageSpec] = {}
        self.is_up = True
        self.fails_loads = False
        self.line = LINE_UP
        self.link: ControlLink | None = None
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def is_connected(self) -> bool:
        """Its link is open."""
        return self.link is not None and self.link.ended is None

    def join(self) -> None:
        """Dial the leader, with what it holds."""
        leader = self.world.leader
        record = leader.disk.fellows.get(self.fellow_id) or FellowRecord(
            self.fellow_id, self.name, self.name, "1", b"", b"", 1.0
        )
        leader.disk.fellows[self.fellow_id] = record
        self.link = link = ControlLink(self.fellow_id, self.name)
        fellow = Fellow(
            record,
            hardware_pb2.Hardware(devices=[self._device()]),
            capabilities_pb2.Capabilities(),
            make_capabilities(check=True, serve_keep=True),
            link=link,
            heartbeat_at_s=leader.clock.monotonic_s(),
        )
        for placement_id, spec in list(self.held.items()):
            placement = leader.board.by_id(placement_id)
            wanted = leader.board.is_wanted(placement_id, self.fellow_id, spec.stage_index)
            if placement is not None and wanted and spec.epoch <= placement.record.epoch:
                fellow.stages[placement_id] = Held((f"{self.name}:1",), status=stage_pb2.StageStatus(spec=spec))
            else:
                del self.held[placement_id]
        leader.registry.put(fellow)
        leader.registry.leases.grant(self.fellow_id)
        link.when_ended(lambda why: self._ended(leader, fellow, link, why))
        leader.faults.take_return(fellow)
        self._tasks = [
            asyncio.ensure_future(self._obey(leader, link)),
            asyncio.ensure_future(self._beat(leader, fellow)),
        ]

    def cut(self) -> None:
        """Only its control link breaks."""
        for task in self._tasks:
            task.cancel()
        if self.link is not None:
            self.link.end(FellowLost(f"{self.name} is cut"))

    def die(self) -> None:
        """The machine is gone, with all it holds."""
        self.is_up = False
        self.cut()
        lost, self.held = self.held, {}
        for placement_id in lost:
            self.world.break_links(placement_id, lost[placement_id].stage_index)

    def crash(self, placement_id: str) -> None:
        """One stage process dies."""
        spec = self.held.pop(placement_id)
        self._tell(link_pb2.StageEvent(spec=spec, kind=CRASHED, message="killed by signal 9"))
        self.world.break_links(placement_id, spec.stage_index)

    def lose_line(self, line: str) -> None:
        """Its line to its neighbours and to the relay breaks; whoever is in a ring with it notices."""
        self.line = line
        for placement_id, spec in list(self.held.items()):
            self.complain(placement_id, (spec.stage_index - 1) % spec.stage_count)
            self.world.break_links(placement_id, spec.stage_index)

    def _tell(self, event: link_pb2.StageEvent) -> None:
        leader = self.world.leader
        fellow = leader.registry.get(self.fellow_id)
        if self.is_connected and fellow is not None:
            sent = link_pb2.StageEvent()
            sent.CopyFrom(event)
            leader.faults.take_stage_event(fellow, sent)

    def complain(self, placement_id: str, peer: int) -> None:
        """A link of its stage broke."""
        spec = self.held[placement_id]
        self._tell(link_pb2.StageEvent(spec=spec, kind=BROKEN, message="connection reset", peer_stage=peer))

    def _ended(self, leader: Any, fellow: Fellow, link: ControlLink, why: SwarmError) -> None:
        leader.signals.take_link_end(link, why)
        if leader.registry.get(self.fellow_id) is fellow:
            leader.registry.leases.break_link(self.fellow_id)
            leader.faults.take_link_end(fellow)

    def _device(self) -> hardware_pb2.Device:
        return hardware_pb2.Device(kind="cpu", memory_free_bytes=self.free_bytes, compute_dtype="F32")

    async def _beat(self, leader: Any, fellow: Fellow) -> None:
        while True:
            await asyncio.sleep(3.0)
            self.beat(leader, fellow)

    def beat(self, leader: Any, fellow: Fellow) -> None:
        """A heartbeat comes."""
        statuses = [stage_pb2.StageStatus(spec=spec) for spec in self.held.values()]
        missing = leader.registry.take_heartbeat(fellow, [self._device()], statuses)
        leader.faults.take_missing(fellow, missing)
        leader.faults.take_statuses(fellow, statuses)

    async def _obey(self, leader: Any, link: ControlLink) -> None:
        while True:
            signal = (await link.next()).signal
            leader.tasks.start(self._do(leader, link, signal), "obey")

    async def _do(self, leader: Any, link: ControlLink, signal: Any) -> None:
        await asyncio.sleep(STEP_S)
        if link.ended is not None or not self.is_up:
            return
        kind, result = signal.WhichOneof("kind"), link_pb2.SignalResult(signal_id=signal.signal_id)
        if kind == "load" and self.fails_loads:
            result.failure.reason, result.failure.message = reason_pb2.REASON_DISK_FULL, "disk full"
        elif kind == "load":
            spec = stage_pb2.StageSpec()
            spec.CopyFrom(signal.load.spec)
            self.held[spec.placement_id] = spec
            result.load.ring_addresses.append(f"{self.name}:1")
            result.load.kv_tokens_measured = 10**6
        elif kind == "check":
            result.check.is_alive = signal.check.placement_id in self.held
        elif kind == "wire":
            spec = self.held.get(signal.wire.placement_id)
            if spec is None:
                result.failure.reason, result.failure.message = reason_pb2.REASON_BAD_REQUEST, "holds no stage"
            else:
                spec.epoch = signal.wire.epoch
                if self.line == LINE_STALLED:
                    await asyncio.sleep(signal.timeout_ms / 1000 - 1)
                result.wire.connected = self.world.reaches_next(self, spec, signal.wire.route)
                result.wire.failure = "refused"
        elif kind == "probe":
            if self.world.goes_round(signal.probe.placement_id):
                result.probe.lap_ms = 1.0
            else:
                result.failure.reason, result.failure.message = reason_pb2.REASON_DEADLINE, "no lap"
        else:
            self.held.pop(signal.unload.placement_id, None)
            result.acknowledged.SetInParent()
        leader.signals.take_result(link, result)


class SimLeader:
    """One run of the leader over a disk."""

    def __init__(self, disk: Disk, loop: VirtualLoop) -> None:
        self.disk, self.clock, self.tasks = disk, VirtualClock(loop), TaskSet()
        config = LeaderConfig(context_tokens=256, load_timeout_s=60.0, wire_timeout_s=3.0, probe_timeout_s=3.0)
        self.registry = Registry(disk, Leases(self.clock, config.lease_s), self.clock)
        self.board, self.signals = Board(disk), Signals()
        gates = Gates(64, self.clock)
        ending = Ending(self.board, self.registry, self.signals, NoReplies(), gates, 2.0)
        keys = LinkKeys(Tickets(b"0" * 32), lambda count: b"0" * count, False, lambda: False)
        wiring = Wiring(self.board, self.registry, self.signals, keys, config)
        stages, catalog = StageLoading(self.board, self.registry, self.signals, config), OneModel()
        self.loading = Loading(
            catalog, self.board, self.registry, stages, wiring, ending, self.tasks, self.clock, config
        )
        replacing = Replacing(catalog, self.board, self.registry, stages, wiring, ending, config)
        parts = Parts(self.board, self.registry, self.signals, stages, wiring, ending, replacing)
        incidents = OpenIncidents(disk)
        self.healing = make_healing(parts, self.loading, self.tasks, self.clock, incidents, config)
        self.draining = Draining(self.board, self.registry, disk, replacing, self.healing, self.tasks, self.clock)
        self.faults = Faults(self.board, self.registry, self.healing, ending, self.tasks, self.clock, config.recover_s)
        self._incidents, self._recover_s = incidents, config.recover_s

    async def start(self) -> None:
        """Know again what was known."""
        await self.registry.start(self._recover_s)
        await recover(self.disk, self._incidents, self.board, self.healing)
        self.tasks.start(sweep_forever(self.registry, self.faults, self.healing, self.draining), "sweep")


class World:
    """A leader and its fellows, on a loop of their own."""

    def __init__(self, count: int = 4, transport: Transport = Transport.AUTO) -> None:
        self.loop = VirtualLoop()
        self.disk = Disk()
        self.has_relay = True
        self._transport = transport
        self.fellows = {
            name: SimFellow(self, name, (8 - index) * GIGABYTE) for index, name in enumerate("abcdef"[:count])
        }
        self.run(self._start())

    def run(self, work: Any) -> Any:
        """Run something to its end, and everything else meanwhile."""
        return self.loop.run_until_complete(work)

    def do(self, call: Callable[..., Any], *args: Any, wait_s: float = 0.0) -> None:
        """Something happens, and then time passes."""

        async def happen() -> None:
            call(*args)
            await asyncio.sleep(wait_s)

        self.run(happen())

    def wait(self, wait_s: float) -> None:
        """Time passes."""
        self.run(asyncio.sleep(wait_s))

    def close(self) -> None:
        """The end of the world."""
        for fellow in self.fellows.values():
            self.do(fellow.cut)
        self.run(self.leader.tasks.close())
        self.loop.close()

    @property
    def placement(self) -> Any:
        """Where the model stands."""
        return self.leader.board.get(MODEL)

    async def _start(self) -> None:
        self.leader = SimLeader(self.disk, self.loop)
        await self.leader.start()
        for fellow in self.fellows.values():
            fellow.join()
        await self.leader.loading.load(MODEL, PlanRequest(3, (), self._transport, 256))
        await asyncio.sleep(2.0)
        assert self.placement.state is PlacementState.READY, self.placement.record.reason

    def restart_leader(self) -> None:
        """Kill it wherever it stands, and start another over the same disk."""
        self.run(self.leader.tasks.close())
        for fellow in self.fellows.values():
            self.do(fellow.cut)
        self.leader = SimLeader(self.disk, self.loop)
        self.run(self.leader.start())

    def break_links(self, placement_id: str, stage_index: int) -> None:
        """Whoever holds a stage of this ring notices that another one is gone."""
        for fellow in self.fellows.values():
            if fellow.is_up and placement_id in fellow.held:
                fellow.complain(placement_id, stage_index)

    def lose_relay(self) -> None:
        """The relay dies; every ring that goes by it breaks."""
        self.has_relay = False
        for fellow in self.fellows.values():
            for placement_id, spec in list(fellow.held.items()):
                if fellow.is_up and Route.RELAY in {one.route for one in self.disk.placements[placement_id].stages}:
                    fellow.complain(placement_id, (spec.stage_index - 1) % spec.stage_count)

    def holders(self, placement_id: str) -> dict[int, stage_pb2.StageSpec]:
        """What is held of a ring, by stage, where its record says."""
        record = self.disk.placements[placement_id]
        found = {}
        for stage in record.stages:
            fellow = next(one for one in self.fellows.values() if one.fellow_id == stage.fellow_id)
            spec = fellow.held.get(placement_id)
            if fellow.is_up and spec is not None and spec.stage_index == stage.stage_index:
                found[stage.stage_index] = spec
        return found

    def reaches_next(self, fellow: SimFellow, spec: stage_pb2.StageSpec, route: Any) -> bool:
        """Whether the next stage is there, or else the relay."""
        if route == stage_pb2.ROUTE_RELAY:
            return self.has_relay and fellow.line == LINE_UP
        following = self.holders(spec.placement_id).get((spec.stage_index + 1) % spec.stage_count)
        lines = [one.line for one in self.fellows.values() if following in one.held.values()]
        return following is not None and {fellow.line, *lines} == {LINE_UP}

    def goes_round(self, placement_id: str) -> bool:
        """Whether every stage is there, at one epoch."""
        held = self.holders(placement_id)
        if any(one.line != LINE_UP for one in self.fellows.values() if placement_id in one.held):
            return False
        stages = self.disk.placements[placement_id].stages
        return len(held) == len(stages) and len({spec.epoch for spec in held.values()}) == 1
