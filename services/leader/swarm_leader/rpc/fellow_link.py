"""fellow.v1.FellowLink: a registration first, then reports up and signals down. Thin: flows decide."""

import asyncio
from collections.abc import AsyncIterator

import grpc
from silentswarm.fellow.v1 import fellow_link_pb2 as link_pb2
from silentswarm.fellow.v1 import fellow_link_pb2_grpc
from swarm_core.errors import BadRequest, FellowLost, Overloaded

from swarm_leader.domain.told import cut_words
from swarm_leader.flows.faults import Faults
from swarm_leader.flows.join import Joined, Joining, Registration
from swarm_leader.flows.network import Network
from swarm_leader.flows.registry import Registry
from swarm_leader.flows.signals import Signals
from swarm_leader.rpc.access import current_caller
from swarm_leader.rpc.capabilities import capabilities_from_proto
from swarm_leader.telemetry.feed import Telemetry
from swarm_leader.trust.identity import LeaderIdentity

REGISTER_TIMEOUT_S = 10.0
REGISTERING_MAX = 256  # whoever has not said who it is yet
STAGES_MAX = 64  # of one heartbeat; a machine holds a few, and whoever claims more is not believed


class FellowLinkServicer(fellow_link_pb2_grpc.FellowLinkServicer):
    """One stream a fellow."""

    def __init__(
        self,
        joining: Joining,
        registry: Registry,
        signals: Signals,
        faults: Faults,
        identity: LeaderIdentity,
        heartbeat_s: float,
        lease_s: float,
        telemetry: Telemetry,
        network: Network,
    ) -> None:
        self._telemetry = telemetry
        self._joining = joining
        self._registry = registry
        self._signals = signals
        self._faults = faults
        self._network = network
        self._identity = identity
        self._heartbeat_s = heartbeat_s
        self._lease_s = lease_s
        self._registering = 0

    async def Connect(
        self, requests: AsyncIterator[link_pb2.ConnectRequest], context: grpc.aio.ServicerContext
    ) -> AsyncIterator[link_pb2.ConnectResponse]:
        joined, certificate_request = await self._register(requests, context.peer())
        link = joined.link
        link.when_ended(lambda why: self._signals.take_link_end(link, why))
        self._telemetry.take_registered(joined.fellow)
        link.when_ended(lambda why: self._telemetry.take_link_end(joined.fellow, why))
        gone = FellowLost(f"its connection broke ({context.peer()})", fellow=link.fellow_name)
        context.add_done_callback(lambda _: link.end(gone))
        reading = asyncio.create_task(self._read(joined, requests, gone))
        try:
            certified = self._identity.certify_fellow(link.fellow_id, certificate_request)
            joined.fellow.has_certificate = bool(certified.certificate)
            registered = link_pb2.Registered(
                fellow_id=link.fellow_id,
                name=link.fellow_name,
                heartbeat_ms=int(self._heartbeat_s * 1000),
                lease_ms=int(self._lease_s * 1000),
                unwanted=joined.unwanted,
                node_credential=joined.credential,
                certificate=certified.certificate,
                roots=certified.roots,
            )
            yield link_pb2.ConnectResponse(registered=registered)
            while True:
                yield await link.next()
        finally:
            reading.cancel()
            link.end(gone)

    async def _register(self, requests: AsyncIterator[link_pb2.ConnectRequest], peer: str) -> tuple[Joined, bytes]:
        """Read the registration and let the fellow in; with its request for a certificate.

        Raises Overloaded, and what keeps it out.
        """
        if self._registering >= REGISTERING_MAX:
            raise Overloaded(f"{self._registering} machines register now, which is the most at once")
        self._registering += 1
        try:
            registration = await _read_registration(requests, peer)
            self._identity.check_request(registration.certificate_request)  # before anything changes
            joined = await self._joining.register(registration, current_caller())
            return joined, registration.certificate_request
        finally:
            self._registering -= 1

    async def _read(self, joined: Joined, requests: AsyncIterator[link_pb2.ConnectRequest], gone: FellowLost) -> None:
        """What comes up, until the stream ends; then the link does."""
        try:
            async for request in requests:
                self._take(joined, request)
        finally:
            joined.link.end(gone)

    def _take(self, joined: Joined, request: link_pb2.ConnectRequest) -> None:
        """One message. A ghost's, whose place was taken, has no effect; nor has what was read after the link ended."""
        fellow, link = joined.fellow, joined.link
        if link.ended is not None or self._registry.get(fellow.fellow_id) is not fellow:
            return
        body = request.WhichOneof("body")
        if body == "heartbeat":
            statuses = list(request.heartbeat.stages)[:STAGES_MAX]
            devices, covers = list(request.heartbeat.devices), request.heartbeat.covers
            missing = self._registry.take_heartbeat(fellow, devices, statuses, covers)
            self._network.take_heartbeat(fellow, request.heartbeat)
            self._faults.take_missing(fellow, missing)
            self._faults.take_statuses(fellow, statuses)
            self._telemetry.take_heartbeat(fellow, request.heartbeat)
        elif body == "result":
            self._signals.take_result(link, request.result)
        elif body == "progress":
            self._signals.take_progress(link, request.progress)
        elif body == "stage_event":
            request.stage_event.message = cut_words(request.stage_event.message)
            self._faults.take_stage_event(fellow, request.stage_event)
            self._telemetry.take_stage_event(fellow, request.stage_event)


async def _read_registration(requests: AsyncIterator[link_pb2.ConnectRequest], peer: str) -> Registration:
    """The first message. Raises BadRequest."""
    try:
        async with asyncio.timeout(REGISTER_TIMEOUT_S):
            first = await anext(aiter(requests))
    except (TimeoutError, StopAsyncIteration):
        raise BadRequest(f"no registration within {REGISTER_TIMEOUT_S:g} s", field="register") from None
    if first.WhichOneof("body") != "register":
        raise BadRequest("the first message must be a registration", field="register")
    register = first.register
    return Registration(
        identity=register.identity,
        name=register.name,
        join_token=register.join_token,
        version=register.version,
        hardware=register.hardware,
        declared=register.capabilities,
        capabilities=capabilities_from_proto(register.capabilities),
        held=tuple(register.held),
        covers=tuple(register.covers),
        process_nonce=register.process_nonce,
        pool=register.pool,
        certificate_request=register.certificate_request,
        peer=peer,
    )
