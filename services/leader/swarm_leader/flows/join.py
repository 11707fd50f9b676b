"""A fellow registers: who it is, what it is called, what it may keep holding. Reads no stream."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from uuid import uuid4

import structlog
from silentswarm.core.v1 import capabilities_pb2, hardware_pb2, stage_pb2
from silentswarm.fellow.v1 import fellow_link_pb2 as link_pb2
from swarm_core.clock import Clock
from swarm_core.errors import BadRequest, Conflict, SwarmError

from swarm_leader.domain.access import NOBODY, Principal
from swarm_leader.domain.capabilities import Capabilities
from swarm_leader.domain.names import POOL_FORM, is_pool, unique_name
from swarm_leader.domain.ports import FellowStore
from swarm_leader.domain.records import MAIN_POOL, FellowRecord
from swarm_leader.flows.admission import Admission, Admissions
from swarm_leader.flows.board import Board
from swarm_leader.flows.faults import Faults
from swarm_leader.flows.registry import Fellow, Held, Registry, read_covers
from swarm_leader.flows.signals import ControlLink

log = structlog.get_logger()
IDENTITY_MAX = 128
NONCE_MAX = 64


@dataclass(frozen=True)
class Registration:
    """What a fellow says of itself. held: the stages it holds, with the addresses they listen on. covers: likewise.

    process_nonce: one word for this run of its process. certificate_request: DER. peer: where it calls from. pool: the
    one it joins, "" is the main one.
    """

    identity: str
    name: str
    join_token: str = field(repr=False)
    version: str
    hardware: hardware_pb2.Hardware
    declared: capabilities_pb2.Capabilities
    capabilities: Capabilities
    held: tuple[link_pb2.HeldStage, ...] = ()
    covers: tuple[link_pb2.HeldCover, ...] = ()
    process_nonce: str = ""
    certificate_request: bytes = b""
    peer: str = ""
    pool: str = ""


@dataclass(frozen=True)
class Joined:
    """A registration that was accepted. unwanted: held stages it is to end. credential: a new one, or ""."""

    fellow: Fellow
    link: ControlLink
    unwanted: tuple[stage_pb2.StageSpec, ...]
    credential: str = field(default="", repr=False)


class Joining:
    """Lets fellows in."""

    def __init__(
        self,
        registry: Registry,
        store: FellowStore,
        board: Board,
        faults: Faults,
        clock: Clock,
        admissions: Admissions,
        new_id: Callable[[], str] = lambda: uuid4().hex,
    ) -> None:
        self._registry = registry
        self._store = store
        self._board = board
        self._faults = faults
        self._clock = clock
        self._admissions = admissions
        self._new_id = new_id

    async def register(self, registration: Registration, principal: Principal = NOBODY) -> Joined:
        """Accept a fellow. The same identity is the same fellow: its older link ends, its id and name stay.

        principal: whose credential came with the call. The record is written only when something lasting changed, and
        is durable when this returns. Raises Unauthenticated, PermissionDenied, Conflict (another process with the same
        identity lives), BadRequest.
        """
        if not 0 < len(registration.identity) <= IDENTITY_MAX:
            raise BadRequest(f"an identity has 1..{IDENTITY_MAX} characters", field="identity")
        if len(registration.process_nonce) > NONCE_MAX:
            raise BadRequest(f"a process_nonce has at most {NONCE_MAX} characters", field="process_nonce")
        if registration.pool and not is_pool(registration.pool):
            raise BadRequest(f"a pool has {POOL_FORM}", field="pool")
        async with self._registry.changing_records:
            known = await self._store.by_identity(registration.identity)
            self._admissions.check_itself(known, principal)
            self._check_alone(known, registration)
            admission = await self._admissions.admit(known, principal, registration.join_token)
            record = await self._record(known, registration, admission)
            return self._let_in(record, registration, admission)

    async def confirm(self, fellow: Fellow) -> None:
        """A fellow presented its credential for the first time: from now on nobody joins in its place."""
        async with self._registry.changing_records:
            if self._registry.get(fellow.fellow_id) is not fellow or fellow.record.credential_confirmed:
                return
            record = replace(fellow.record, credential_confirmed=True)
            try:
                await self._store.save(record)
            except SwarmError as error:
                log.warning("a credential cannot be confirmed now", fellow=fellow.name, why=error.message)
                return
            fellow.record = record

    def _check_alone(self, known: FellowRecord | None, registration: Registration) -> None:
        """Of two processes with one identity the first stays, for as long as it lives. Raises Conflict."""
        first = self._registry.get(known.fellow_id) if known is not None else None
        if first is None or first.link is None or first.link.ended is not None:
            return
        if registration.process_nonce == first.process_nonce:
            return
        if not first.process_nonce or not self._registry.leases.is_running(first.fellow_id):
            return
        peers = {"first": first.peer, "second": registration.peer}
        log.warning("a second process of one machine is refused", fellow=first.name, **peers)
        raise Conflict(
            f"fellow {first.name} is connected already, by another process with the same identity, from {first.peer}. "
            "Stop that one; or, when this is another machine, give it a state folder of its own "
            "(SWARM_FELLOW_STATE_DIR) instead of a copy",
            fellow=first.name,
        )

    async def _record(
        self, known: FellowRecord | None, registration: Registration, admission: Admission
    ) -> FellowRecord:
        """The fellow's record, saved when it is new or changed."""
        fellow_id = known.fellow_id if known else self._new_id()
        taken = {fellow.name for fellow in self._registry.all() if fellow.fellow_id != fellow_id}
        record = FellowRecord(
            fellow_id=fellow_id,
            identity=registration.identity,
            name=unique_name(registration.name, known.name if known else "", taken),
            version=registration.version,
            hardware=_lasting(registration.hardware),
            capabilities=registration.declared.SerializeToString(deterministic=True),
            joined_s=known.joined_s if known else self._clock.unix_s(),
            credential_sha256=admission.credential_sha256,
            credential_confirmed=admission.is_confirmed,
            joined_by=admission.joined_by,
            draining=known.draining if known else False,
            pool=registration.pool or MAIN_POOL,
        )
        if record != known:
            await self._store.save(record)
        return record

    def _let_in(self, record: FellowRecord, registration: Registration, admission: Admission) -> Joined:
        """Put it in the registry in place of its ghost, and re-adopt what it holds."""
        ghost = self._registry.get(record.fellow_id)
        if ghost is not None and ghost.link is not None:
            ghost.link.end(Conflict(f"fellow {record.name} opened a newer connection", fellow=record.name))
        link: ControlLink = ControlLink(record.fellow_id, record.name)
        fellow = Fellow(
            record=record,
            hardware=registration.hardware,
            declared=registration.declared,
            capabilities=registration.capabilities,
            link=link,
            process_nonce=registration.process_nonce,
            peer=registration.peer,
            covers=read_covers(registration.covers),
        )
        unwanted = []
        for held in registration.held:
            spec = held.status.spec
            if self._is_kept(record.fellow_id, spec):
                fellow.stages[spec.placement_id] = self._held(spec, held)
            else:
                unwanted.append(spec)
        self._registry.put(fellow)
        self._registry.leases.grant(record.fellow_id)
        link.when_ended(lambda why: self._link_ended(fellow, why))
        log.info("fellow joined", fellow=record.name, holds=len(fellow.stages), unwanted=len(unwanted))
        self._faults.take_return(fellow)
        return Joined(fellow, link, tuple(unwanted), admission.credential)

    def _is_kept(self, fellow_id: str, spec: stage_pb2.StageSpec) -> bool:
        """Whether a held stage is known, wanted, and of no epoch that this leader never gave."""
        if not self._board.is_wanted(spec.placement_id, fellow_id, spec.stage_index):
            return False
        placement = self._board.by_id(spec.placement_id)
        return placement is not None and spec.epoch <= placement.record.epoch

    def _held(self, spec: stage_pb2.StageSpec, held: link_pb2.HeldStage) -> Held:
        """A stage that is kept, with what its weights take as far as the ledger knows."""
        kept = Held(ring_addresses=tuple(held.ring_addresses), status=held.status)
        placement = self._board.by_id(spec.placement_id)
        if placement is not None:
            stage = placement.record.stages[spec.stage_index]
            kept.weight_bytes = stage.weight_bytes_measured or stage.weight_bytes
            kept.device_bytes = {run.device_index: run.weight_bytes for run in stage.devices}
        return kept

    def _link_ended(self, fellow: Fellow, why: SwarmError) -> None:
        """Noticed at once; what it holds stays its own until the lease is over."""
        if self._registry.get(fellow.fellow_id) is fellow:
            self._registry.leases.break_link(fellow.fellow_id)
            for placement in self._board.holding(fellow.fellow_id):
                self._board.notify(placement.model_id)
            log.info("fellow's link ended", fellow=fellow.name, why=why.message)
            self._faults.take_link_end(fellow)


def _lasting(hardware: hardware_pb2.Hardware) -> bytes:
    """The hardware without its live figures, which would change the record at every registration."""
    lasting = hardware_pb2.Hardware()
    lasting.CopyFrom(hardware)
    for device in lasting.devices:
        device.ClearField("memory_free_bytes")
    for figure in ("leader_round_trip_ms", "leader_down_bytes_per_s", "leader_up_bytes_per_s"):
        lasting.ClearField(figure)
    return lasting.SerializeToString(deterministic=True)
