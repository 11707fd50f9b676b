"""The control link: register, heartbeats, results, events up, signals down; dialled again for ever. Runs no stage."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import grpc
import structlog
from silentswarm.core.v1 import capabilities_pb2, stage_pb2
from silentswarm.fellow.v1 import fellow_link_pb2 as link_pb2
from silentswarm.fellow.v1.fellow_link_pb2_grpc import FellowLinkStub
from swarm_core.clock import Clock
from swarm_core.errors import DeadlinePassed, LinkBroken, Reason, RemoteError, SwarmError
from swarm_rpc.errors import error_of
from swarm_rpc.race import run_until_first
from swarm_rpc.tls import Trust

from swarm_fellow.domain.backoff import Draw, failures_after, heartbeat_delay_s, redial_delay_s
from swarm_fellow.domain.telling import FailuresTold
from swarm_fellow.flows.covers import Covers
from swarm_fellow.flows.load import Loader
from swarm_fellow.flows.log_push import LogPush
from swarm_fellow.flows.maintenance import Maintenance
from swarm_fellow.flows.serve import ReplyServer
from swarm_fellow.flows.signals import SignalRunner
from swarm_fellow.flows.stages import StageTable
from swarm_fellow.flows.survey import Survey
from swarm_fellow.flows.vitals import Vitals
from swarm_fellow.host.certificates import NodeCertificates
from swarm_fellow.host.credential import NodeCredential
from swarm_fellow.host.hardware_reader import HardwareReader
from swarm_fellow.host.leader_door import LeaderDoor
from swarm_fellow.rpc.convert import devices_to_proto, machine_to_proto

log = structlog.get_logger()

REGISTER_TIMEOUT_S = 20.0
OUTBOX_MAX = 512  # messages; a link that is so far behind is broken
HEARTBEAT_MS_DEFAULT = 5_000
FAREWELL_S = 2.0  # for the leader to take the last words before the program starts anew
REFUSALS = {
    Reason.UNAUTHENTICATED,
    Reason.PERMISSION_DENIED,
    Reason.BAD_REQUEST,
    Reason.CAPABILITY_MISSING,
    Reason.CONFLICT,
}


@dataclass(frozen=True)
class Introduction:
    """What a fellow says of itself at every registration; hardware and held stages are read anew each time.

    process_nonce: one word for this run of the process.
    """

    identity: str
    name: str
    join_token: str = field(repr=False)
    version: str
    capabilities: capabilities_pb2.Capabilities
    process_nonce: str
    pool: str = ""


# Told the credential to present on calls beside Connect ("" is none).
CredentialSink = Callable[[tuple[tuple[str, str], ...]], None]


@dataclass(frozen=True)
class LinkParts:
    """What every connection works with.

    relay_default: relay for a WIRE that names none. on_credential: told the call metadata that other clients need.
    """

    hardware: HardwareReader
    table: StageTable
    loader: Loader
    covers: Covers
    maintenance: Maintenance
    replies: ReplyServer
    survey: Survey
    vitals: Vitals
    log_push: LogPush
    clock: Clock
    draw: Draw
    relay_default: str
    on_credential: CredentialSink
    door: LeaderDoor
    certificates: NodeCertificates
    credential: NodeCredential

    def memory_bytes(self) -> int:
        """Main memory that stages and covers take, as they last said."""
        return self.table.memory_bytes() + self.covers.memory_bytes()


class LeaderLink:
    """Keeps this machine joined to its leader. Stages live on while there is none.

    on_state: told in words how the link stands, for the service manager.
    """

    def __init__(self, introduction: Introduction, parts: LinkParts, on_state: Callable[[str], None]) -> None:
        self._introduction = introduction
        self._parts = parts
        self._on_state = on_state
        self.is_connected = False
        self.registrations = 0  # since the start; every one after the first is a reconnect

    async def run(self) -> None:
        """Connect, and connect again, until cancelled."""
        failures, failures_told = 0, FailuresTold()
        while True:
            began_s = self._parts.clock.monotonic_s()
            try:
                await self._connect()
                why: SwarmError = LinkBroken("the leader ended the link")
            except grpc.RpcError as error:
                why = await self._explain(error_of(error))
            except SwarmError as error:
                why = error
            except asyncio.InvalidStateError:
                why = await self._explain(LinkBroken("the link ended"))
            failures = failures_after(failures, self._parts.clock.monotonic_s() - began_s)
            delay_s = redial_delay_s(failures, self._parts.draw())
            if failures_told.is_news(why.message, failures, self._parts.clock.monotonic_s()):
                say = log.error if why.why in REFUSALS else log.warning
                say("not connected to the leader", why=why.message, failures=failures, again_in_s=round(delay_s, 2))
            self._on_state(f"not connected: {why.message}")
            await asyncio.sleep(delay_s)

    async def _connect(self) -> None:
        """One connection, from registration to its end. Raises what ended it."""
        channel = await self._parts.door.open()
        call = FellowLinkStub(channel).Connect(metadata=self._parts.credential.metadata)
        try:
            registered = await self._register(call)
            log.info("registered with the leader", fellow_id=registered.fellow_id, name=registered.name)
            self._on_state(f"connected as {registered.name}")
            self.is_connected = True
            self.registrations += 1
            await _Connection(self._parts, channel, call, registered).run()
        finally:
            self.is_connected = False
            call.cancel()
            await channel.close()

    async def _explain(self, why: SwarmError) -> SwarmError:
        """A channel that does not come up says little; TLS may be to blame."""
        may_be_tls = why.why in (Reason.UNAVAILABLE, Reason.LINK_BROKEN) and not self.is_connected
        told = await self._parts.door.explain() if may_be_tls else ""
        return RemoteError(why.why, told) if told else why

    async def _register(self, call: grpc.aio.StreamStreamCall) -> link_pb2.Registered:
        table = self._parts.table
        await asyncio.gather(table.refresh(), self._parts.covers.refresh())
        machine = await self._parts.hardware.machine(self._parts.memory_bytes())
        register = link_pb2.Register(
            identity=self._introduction.identity,
            name=self._introduction.name,
            join_token=self._introduction.join_token,
            hardware=machine_to_proto(machine),
            capabilities=self._introduction.capabilities,
            version=self._introduction.version,
            process_nonce=self._introduction.process_nonce,
            pool=self._introduction.pool,
            certificate_request=await asyncio.to_thread(self._parts.certificates.request),
            held=[
                link_pb2.HeldStage(status=stage.status, ring_addresses=stage.loaded.ring_addresses)
                for stage in table.loaded()
            ],
            covers=self._parts.covers.held(),
        )
        try:
            async with asyncio.timeout(REGISTER_TIMEOUT_S):
                await call.write(link_pb2.ConnectRequest(register=register))
                answer = await call.read()
        except TimeoutError:
            raise DeadlinePassed(f"the leader did not answer the registration in {REGISTER_TIMEOUT_S:g} s") from None
        if answer is grpc.aio.EOF or answer.WhichOneof("body") != "registered":
            raise LinkBroken("the leader ended the link instead of accepting the registration")
        registered = answer.registered
        # Before it is used once: from its first use on the leader takes nothing else from this machine.
        await asyncio.to_thread(self._parts.credential.keep, registered.node_credential)
        await asyncio.to_thread(self._parts.certificates.keep, registered.certificate, registered.roots)
        await asyncio.to_thread(self._parts.door.take_roots, registered.roots)
        return registered


class _Connection:
    """One registered connection: everything in it ends with it."""

    def __init__(
        self,
        parts: LinkParts,
        channel: grpc.aio.Channel,
        call: grpc.aio.StreamStreamCall,
        registered: link_pb2.Registered,
    ) -> None:
        self._parts = parts
        self._channel = channel
        self._call = call
        self._registered = registered
        self._outbox: asyncio.Queue[link_pb2.ConnectRequest] = asyncio.Queue(OUTBOX_MAX)
        self._overflow = asyncio.Event()
        self._restart_due = asyncio.Event()
        self._signals = SignalRunner(
            parts.table,
            parts.loader,
            parts.covers,
            parts.maintenance,
            parts.clock,
            parts.relay_default,
            self._send,
            self._relay_trust,
            self._restart_due.set,
        )

    async def run(self) -> None:
        """Until the link breaks. Raises what broke it."""
        metadata = self._parts.credential.metadata
        self._parts.on_credential(metadata)
        self._parts.table.report_to(self._send)
        try:
            await run_until_first(
                self._read(),
                self._write(),
                self._heartbeats(),
                self._break_when_full(),
                self._end_unwanted(self._registered.unwanted),
                self._break_when_old(),
                self._restart_when_told(),
                self._parts.replies.run(self._channel, self._registered.fellow_id, metadata),
                self._parts.survey.run(self._channel),
                self._parts.log_push.run(self._channel, metadata),
            )
        finally:
            self._parts.table.report_to(None)
            await self._signals.close()

    def _send(self, message: link_pb2.ConnectRequest) -> bool:
        try:
            self._outbox.put_nowait(message)
        except asyncio.QueueFull:
            self._overflow.set()
            return False
        return True

    async def _read(self) -> None:
        while (message := await self._call.read()) is not grpc.aio.EOF:
            if message.WhichOneof("body") == "signal":
                self._signals.start(message.signal)

    async def _write(self) -> None:
        while True:
            await self._call.write(await self._outbox.get())
            self._outbox.task_done()

    async def _restart_when_told(self) -> None:
        """Once the answer to UPDATE is with the leader: end our half, and let it end its own. Raises LinkBroken."""
        await self._restart_due.wait()
        try:
            async with asyncio.timeout(FAREWELL_S):
                await self._outbox.join()
                await self._call.done_writing()
                await asyncio.Event().wait()  # ended by _read, when the leader ends the link
        except TimeoutError:
            raise LinkBroken("the program starts anew") from None
        finally:
            self._parts.maintenance.restart.set()

    async def _break_when_full(self) -> None:
        await self._overflow.wait()
        raise LinkBroken(f"{OUTBOX_MAX} messages wait for the leader; the link is too slow or dead")

    async def _break_when_old(self) -> None:
        """A certificate is renewed by registering again, which stages do not notice."""
        renew_after_s = self._parts.certificates.renew_after_s
        if renew_after_s is None:
            await asyncio.Event().wait()
        await asyncio.sleep(renew_after_s or 0)
        raise LinkBroken("a new certificate is due; registering again")

    def _relay_trust(self, relay_address: str) -> Trust | None:
        return self._parts.door.relay_trust(relay_address, self._parts.certificates.roots)

    async def _heartbeats(self) -> None:
        table, covers, hardware = self._parts.table, self._parts.covers, self._parts.hardware
        sequence = 0
        interval_ms = self._registered.heartbeat_ms or HEARTBEAT_MS_DEFAULT
        while True:
            began_s = self._parts.clock.monotonic_s()
            devices, _, _ = await asyncio.gather(
                hardware.devices(self._parts.memory_bytes()), table.refresh(), covers.refresh()
            )
            sequence += 1
            # Put together in one step, so that it never disagrees with the events and results before it.
            statuses = table.statuses()
            heartbeat = link_pb2.Heartbeat(
                sequence=sequence,
                devices=devices_to_proto(devices),
                stages=statuses,
                covers=covers.held(),
                telemetry=self._parts.vitals.told(statuses),
            )
            self._send(link_pb2.ConnectRequest(heartbeat=heartbeat))
            spent_s = self._parts.clock.monotonic_s() - began_s
            await asyncio.sleep(max(heartbeat_delay_s(interval_ms, self._parts.draw()) - spent_s, 0.02))

    async def _end_unwanted(self, unwanted: list[stage_pb2.StageSpec]) -> None:
        """End what the leader no longer wants, then idle until the connection ends."""
        if unwanted:
            log.info("the leader no longer wants stages", placements=[spec.placement_id for spec in unwanted])
        await asyncio.gather(*(self._parts.table.end_placement(spec.placement_id) for spec in unwanted))
        await asyncio.Event().wait()
