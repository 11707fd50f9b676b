"""The fellows as the leader knows them now: record, link, live figures, stages held. Decides nothing, sends nothing."""

import asyncio
import hmac
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from silentswarm.core.v1 import capabilities_pb2, hardware_pb2, stage_pb2
from silentswarm.fellow.v1 import fellow_link_pb2 as link_pb2
from swarm_core.clock import Clock
from swarm_core.errors import FellowLost, FellowNotFound

from swarm_leader.domain.busy import BusyShare
from swarm_leader.domain.capabilities import Capabilities
from swarm_leader.domain.leases import FellowState, Leases
from swarm_leader.domain.ports import FellowStore
from swarm_leader.domain.records import FellowRecord
from swarm_leader.flows.link_times import LinkTimes
from swarm_leader.flows.signals import ControlLink

DEVICES_MAX = 64  # of one fellow; beyond that it is not believed
COVERS_MAX = 64  # of one fellow; it holds fewer, and whoever claims more is not believed
FORMER_MAX = 256  # deleted fellows whose names are remembered
MISSES_MAX = 2  # a heartbeat may have been written just before its stage was reported loaded; two in a row were not


@dataclass
class Held:
    """A stage that a fellow holds. weight_bytes: 0 is unknown. status: its live figures, once reported.

    device_bytes: its weights by device index; empty when it is not known where they are.
    """

    ring_addresses: tuple[str, ...] = ()
    weight_bytes: int = 0
    status: stage_pb2.StageStatus | None = None
    misses: int = 0
    busy: BusyShare = field(default_factory=BusyShare)
    device_bytes: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class HeldCover:
    """A stage that a fellow holds outside of its ring. The figures and addresses are a hot one's; 0 is unknown."""

    is_hot: bool
    ring_addresses: tuple[str, ...] = ()
    weight_bytes: int = 0
    kv_tokens_measured: int = 0
    memory_bytes: int = 0


@dataclass
class Fellow:
    """One machine, known for good and perhaps connected.

    process_nonce: word of the process that holds the link, and peer where it calls from. stages: by placement id,
    oldest first. freed_bytes: what stages held that ended since the last heartbeat, by placement id and device index.
    unwanted_at_s: when it was told to end a stage that it still reports. has_certificate: it got one when it
    registered. covers: by placement id and stage index; covers_made: those that it was told to hold and does not yet;
    covers_lost: those that did not take their place in a ring, and are not believed again.
    """

    record: FellowRecord
    hardware: hardware_pb2.Hardware
    declared: capabilities_pb2.Capabilities
    capabilities: Capabilities
    link: ControlLink | None = None
    process_nonce: str = ""
    peer: str = ""
    has_certificate: bool = False
    heartbeat_at_s: float | None = None
    stages: dict[str, Held] = field(default_factory=dict)
    freed_bytes: dict[str, Mapping[int, int]] = field(default_factory=dict)
    unwanted_at_s: dict[str, float] = field(default_factory=dict)
    covers: dict[tuple[str, int], HeldCover] = field(default_factory=dict)
    covers_made: set[tuple[str, int]] = field(default_factory=set)
    covers_lost: set[tuple[str, int]] = field(default_factory=set)

    @property
    def fellow_id(self) -> str:
        """The leader's id for it."""
        return self.record.fellow_id

    @property
    def name(self) -> str:
        """Its name."""
        return self.record.name

    @property
    def best_device(self) -> hardware_pb2.Device | None:
        """Where its next stage runs: a card before the processor, then the roomier; None when it named no device."""
        devices = sorted(
            self.hardware.devices,
            key=lambda device: (device.kind != "cuda", -device.memory_free_bytes, device.device_index),
        )
        return devices[0] if devices else None

    @property
    def stage_devices(self) -> list[hardware_pb2.Device]:
        """Where its next stage would be: with serve_devices all its cards (else all processors), in its own order;
        without, the best one alone.
        """
        best = self.best_device
        if best is None:
            return []
        if not self.capabilities.serve_devices:
            return [best]
        devices = [device for device in self.hardware.devices if device.kind == best.kind]
        return sorted(devices, key=lambda device: device.device_index)

    def memory_of(self, held: Held) -> Mapping[int, int]:
        """Bytes that a stage holds by device index, as far as its last figures count them."""
        best = self.best_device
        if held.status is None or best is None:
            return {}
        # What a process holds on a card is not in its resident memory; the weights are the most of it.
        if best.kind == "cuda" and held.weight_bytes > 0:
            return held.device_bytes or {best.device_index: held.weight_bytes}
        return {best.device_index: held.status.memory_bytes}

    def cover_memory_of(self, cover: HeldCover) -> Mapping[int, int]:
        """Bytes that a cover holds by device index, as far as is known."""
        best = self.best_device
        if best is None or not cover.is_hot:
            return {}
        is_on_card = best.kind == "cuda" and cover.weight_bytes > 0
        return {best.device_index: cover.weight_bytes if is_on_card else cover.memory_bytes}

    def drop_stage(self, placement_id: str) -> None:
        """A stage is held no more. Its memory counts as free until the next figures come."""
        held = self.stages.pop(placement_id, None)
        if held is not None:
            self.freed_bytes[placement_id] = self.memory_of(held)


def read_covers(told: Iterable[link_pb2.HeldCover]) -> dict[tuple[str, int], HeldCover]:
    """The covers a fellow says it holds, by placement and stage; bounded."""
    covers: dict[tuple[str, int], HeldCover] = {}
    for one in list(told)[:COVERS_MAX]:
        covers[one.spec.placement_id, one.spec.stage_index] = HeldCover(
            is_hot=one.kind == link_pb2.COVER_KIND_HOT,
            ring_addresses=tuple(one.ring_addresses),
            weight_bytes=one.weight_bytes,
            kv_tokens_measured=one.kv_tokens_measured,
            memory_bytes=one.memory_bytes,
        )
    return covers


def kv_tokens_max(status: stage_pb2.StageStatus) -> int:
    """KV positions a stage's ring admits by: what was wired, else what was planned; 0 when it says neither."""
    return status.kv_tokens_max or status.spec.kv_tokens


class Registry:
    """Every fellow not deleted."""

    def __init__(self, store: FellowStore, leases: Leases, clock: Clock) -> None:
        self.leases = leases
        self.link_times = LinkTimes()
        self.changing_records = asyncio.Lock()  # from reading a fellow's record to having written it changed
        self._store = store
        self._clock = clock
        self._fellows: dict[str, Fellow] = {}
        self._credentials: dict[str, str] = {}  # fellow id by SHA-256 of its credential
        self._former_names: dict[str, str] = {}  # of deleted ones, which words may still be about

    async def start(self, recover_s: float) -> None:
        """Know every fellow of the store again, each with one whole lease of `recover_s` to come back in."""
        for record in await self._store.all():
            self.put(
                Fellow(
                    record=record,
                    hardware=hardware_pb2.Hardware.FromString(record.hardware),
                    declared=capabilities_pb2.Capabilities.FromString(record.capabilities),
                    capabilities=Capabilities(),
                )
            )
            self.leases.grant(record.fellow_id, is_linked=False, lease_s=recover_s)

    def put(self, fellow: Fellow) -> None:
        """Add or replace a fellow; a credential it had before opens nothing any more."""
        self._forget_credential(fellow.fellow_id)
        self._fellows[fellow.fellow_id] = fellow
        if fellow.record.credential_sha256:
            self._credentials[fellow.record.credential_sha256] = fellow.fellow_id

    def forget(self, fellow_id: str) -> None:
        """A fellow was deleted."""
        self._forget_credential(fellow_id)
        former = self._fellows.pop(fellow_id, None)
        if former is not None:
            self._former_names[fellow_id] = former.name
            if len(self._former_names) > FORMER_MAX:
                del self._former_names[next(iter(self._former_names))]
        self.link_times.forget(fellow_id)
        self.leases.forget(fellow_id)

    def get(self, fellow_id: str) -> Fellow | None:
        """By id."""
        return self._fellows.get(fellow_id)

    def by_credential(self, digest: str) -> Fellow | None:
        """The fellow whose credential has this SHA-256, hex."""
        fellow = self._fellows.get(self._credentials.get(digest, ""))
        is_its_own = fellow is not None and hmac.compare_digest(fellow.record.credential_sha256, digest)
        return fellow if is_its_own else None

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
        """A fellow's name, or the one it had; its id when neither is known."""
        fellow = self._fellows.get(fellow_id)
        return fellow.name if fellow else self._former_names.get(fellow_id, fellow_id)

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

    def held_by(self, fellow_id: str, placement_id: str) -> Held | None:
        """A stage as its fellow holds it; None when it does not."""
        fellow = self._fellows.get(fellow_id)
        return fellow.stages.get(placement_id) if fellow is not None else None

    def status_of(self, fellow_id: str, placement_id: str) -> stage_pb2.StageStatus | None:
        """A stage's live figures, as of the last heartbeat; None before one, and when it is not held."""
        held = self.held_by(fellow_id, placement_id)
        return held.status if held is not None else None

    def is_connected(self, fellow_id: str) -> bool:
        """Whether its link is open."""
        fellow = self._fellows.get(fellow_id)
        return fellow is not None and fellow.link is not None and fellow.link.ended is None

    def is_draining(self, fellow_id: str) -> bool:
        """Whether nothing new is placed on it."""
        fellow = self._fellows.get(fellow_id)
        return fellow is not None and fellow.record.draining

    def take_heartbeat(
        self,
        fellow: Fellow,
        devices: list[hardware_pb2.Device],
        statuses: list[stage_pb2.StageStatus],
        covers: Iterable[link_pb2.HeldCover] = (),
    ) -> list[str]:
        """Renew the lease and the live figures. Returns the placements it held before and holds no more."""
        self.leases.grant(fellow.fellow_id)
        fellow.heartbeat_at_s = self._clock.monotonic_s()
        if devices:
            del fellow.hardware.devices[:]
            fellow.hardware.devices.extend(devices[:DEVICES_MAX])
        fellow.covers = {key: one for key, one in read_covers(covers).items() if key not in fellow.covers_lost}
        reported = {status.spec.placement_id: status for status in statuses}
        fellow.freed_bytes.clear()
        for placement_id, status in reported.items():
            held = fellow.stages.setdefault(placement_id, Held())
            held.status, held.misses = status, 0
            held.busy.note(status.loaded_s, status.busy_s)
        missing = []
        for placement_id, held in list(fellow.stages.items()):
            if placement_id not in reported:
                held.misses += 1
                if held.misses >= MISSES_MAX:
                    del fellow.stages[placement_id]
                    missing.append(placement_id)
        return missing

    def _forget_credential(self, fellow_id: str) -> None:
        old = self._fellows.get(fellow_id)
        if old is not None:
            self._credentials.pop(old.record.credential_sha256, None)
