"""The fellows as the leader knows them now: record, link, live figures, stages held. Decides nothing, sends nothing."""

from dataclasses import dataclass, field

from silentswarm.core.v1 import capabilities_pb2, hardware_pb2, stage_pb2
from swarm_core.clock import Clock
from swarm_core.errors import FellowLost, FellowNotFound

from swarm_leader.domain.capabilities import Capabilities, FellowFacts
from swarm_leader.domain.leases import FellowState, Leases
from swarm_leader.domain.ports import FellowStore
from swarm_leader.domain.records import FellowRecord
from swarm_leader.flows.signals import ControlLink

MISSES_MAX = 2  # a heartbeat may have been written just before its stage was reported loaded; two in a row were not


@dataclass
class Held:
    """A stage that a fellow holds. status: its live figures, once a heartbeat brought them."""

    ring_addresses: tuple[str, ...] = ()
    status: stage_pb2.StageStatus | None = None
    misses: int = 0


@dataclass
class Fellow:
    """One machine, known for good and perhaps connected. stages: by placement id, oldest first."""

    record: FellowRecord
    hardware: hardware_pb2.Hardware
    declared: capabilities_pb2.Capabilities
    capabilities: Capabilities
    link: ControlLink | None = None
    heartbeat_at_s: float | None = None
    stages: dict[str, Held] = field(default_factory=dict)
    unwanted_at_s: dict[str, float] = field(default_factory=dict)

    @property
    def fellow_id(self) -> str:
        """The leader's id for it."""
        return self.record.fellow_id

    @property
    def name(self) -> str:
        """Its name."""
        return self.record.name


class Registry:
    """Every fellow not deleted."""

    def __init__(self, store: FellowStore, leases: Leases, clock: Clock) -> None:
        self.leases = leases
        self._store = store
        self._clock = clock
        self._fellows: dict[str, Fellow] = {}

    async def start(self, recover_s: float) -> None:
        """Know every fellow of the store again, each with one whole lease of `recover_s` to come back in."""
        for record in await self._store.all():
            self._fellows[record.fellow_id] = Fellow(
                record=record,
                hardware=hardware_pb2.Hardware.FromString(record.hardware),
                declared=capabilities_pb2.Capabilities.FromString(record.capabilities),
                capabilities=Capabilities(),
            )
            self.leases.grant(record.fellow_id, is_linked=False, lease_s=recover_s)

    def put(self, fellow: Fellow) -> None:
        """Add or replace a fellow."""
        self._fellows[fellow.fellow_id] = fellow

    def forget(self, fellow_id: str) -> None:
        """A fellow was deleted."""
        self._fellows.pop(fellow_id, None)
        self.leases.forget(fellow_id)

    def get(self, fellow_id: str) -> Fellow | None:
        """By id."""
        return self._fellows.get(fellow_id)

    def all(self) -> list[Fellow]:
        """By name."""
        return sorted(self._fellows.values(), key=lambda fellow: fellow.name)

    def find(self, id_or_name: str) -> Fellow:
        """By id or name. Raises FellowNotFound that names who is known."""
        for fellow in self._fellows.values():
            if id_or_name in (fellow.fellow_id, fellow.name):
                return fellow
        known = ", ".join(fellow.name for fellow in self.all()) or "none"
        raise FellowNotFound(f"no fellow {id_or_name!r}; known: {known}", fellow=id_or_name, known=known)

    def name_of(self, fellow_id: str) -> str:
        """A fellow's name; its id when it is not known any more."""
        fellow = self._fellows.get(fellow_id)
        return fellow.name if fellow else fellow_id

    def state(self, fellow: Fellow) -> FellowState:
        """Whether it is there."""
        return self.leases.state(fellow.fellow_id)

    def link_of(self, fellow_id: str) -> ControlLink:
        """The open link of a fellow. Raises FellowLost when there is none."""
        fellow = self._fellows.get(fellow_id)
        if fellow is None or fellow.link is None or fellow.link.ended is not None:
            name = self.name_of(fellow_id)
            raise FellowLost(f"fellow {name} is not connected", fellow=name)
        return fellow.link

    def is_connected(self, fellow_id: str) -> bool:
        """Whether its link is open."""
        fellow = self._fellows.get(fellow_id)
        return fellow is not None and fellow.link is not None and fellow.link.ended is None

    def facts(self) -> list[FellowFacts]:
        """What the planner may use: every connected fellow."""
        return [facts_of(fellow) for fellow in self.all() if self.is_connected(fellow.fellow_id)]

    def take_heartbeat(
        self, fellow: Fellow, devices: list[hardware_pb2.Device], statuses: list[stage_pb2.StageStatus]
    ) -> list[str]:
        """Renew the lease and the live figures. Returns the placements it held before and holds no more."""
        self.leases.grant(fellow.fellow_id)
        fellow.heartbeat_at_s = self._clock.monotonic_s()
        if devices:
            del fellow.hardware.devices[:]
            fellow.hardware.devices.extend(devices)
        reported = {status.spec.placement_id: status for status in statuses}
        for placement_id, status in reported.items():
            held = fellow.stages.setdefault(placement_id, Held())
            held.status, held.misses = status, 0
        missing = []
        for placement_id, held in list(fellow.stages.items()):
            if placement_id not in reported:
                held.misses += 1
                if held.misses >= MISSES_MAX:
                    del fellow.stages[placement_id]
                    missing.append(placement_id)
        return missing


def facts_of(fellow: Fellow) -> FellowFacts:
    """A fellow as the planner sees it: its best device, a card before the processor, then the roomier."""
    devices = sorted(
        fellow.hardware.devices,
        key=lambda device: (device.kind != "cuda", -device.memory_free_bytes, device.device_index),
    )
    best = devices[0] if devices else None
    free = best.memory_free_bytes if best is not None and best.HasField("memory_free_bytes") else None
    return FellowFacts(
        fellow_id=fellow.fellow_id,
        name=fellow.name,
        free_bytes=None if free is None else free + _evictable_bytes(fellow),
        compute_dtype=best.compute_dtype if best is not None else "",
        capabilities=fellow.capabilities,
    )


def _evictable_bytes(fellow: Fellow) -> int:
    """What the fellow would free by itself to take one more model: its oldest ones beyond its limit."""
    serve = fellow.capabilities.serve
    excess = len(fellow.stages) + 1 - max(1, serve.loaded_models_max) if serve else 0
    oldest = list(fellow.stages.values())[: max(0, excess)]
    return sum(held.status.memory_bytes for held in oldest if held.status is not None)
