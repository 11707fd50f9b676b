"""relay.v1.Relay: attach, then move payloads one way. Thin: the rules are in lane, board and ticket."""

import asyncio
from collections.abc import AsyncIterator, Callable

import grpc
from silentswarm.relay.v1 import relay_pb2, relay_pb2_grpc
from swarm_core.errors import BadRequest, PermissionDenied, Unauthenticated
from swarm_rpc.race import run_until_first

from swarm_leader.relay.board import LaneBoard
from swarm_leader.relay.doorway import Doorway
from swarm_leader.relay.lane import Lane, LaneLimits
from swarm_leader.relay.ticket import Tickets

ATTACH_TIMEOUT_S = 10.0
NAME_MAX = 128
BUNDLE_MAX = 32  # payloads of one message
BUNDLE_BYTES_MAX = 2**20  # beyond it the next payload goes alone: a bundle saves messages, not bytes
_ROLES = {relay_pb2.ROLE_SENDER: "sender", relay_pb2.ROLE_RECEIVER: "receiver"}


class RelayServicer(relay_pb2_grpc.RelayServicer):
    """One stream an end of a lane.

    tickets: checks what is presented; None: a relay that knows no leader, and takes no ticket at its word.
    is_open: whether an end may attach without one; a wrong one never may.
    """

    def __init__(
        self,
        limits: LaneLimits | None = None,
        tickets: Tickets | None = None,
        is_open: Callable[[], bool] = lambda: True,
    ) -> None:
        self._limits = limits or LaneLimits()
        self._tickets = tickets
        self._is_open = is_open
        self._doorway = Doorway()
        self.board = LaneBoard(self._limits)

    async def Attach(
        self, requests: AsyncIterator[relay_pb2.AttachRequest], context: grpc.aio.ServicerContext
    ) -> AsyncIterator[relay_pb2.AttachResponse]:
        with self._doorway.stream_of(context.peer()):
            with self._doorway.waiting():
                attach = await _read_attach(requests)
            role = _ROLES[attach.role]
            self._check_ticket(attach, role)
            lane = self.board.attach(attach.lane, attach.channel, attach.epoch, role)
            try:
                accepted = relay_pb2.Attached(payload_bytes_max=self._limits.payload_bytes_max, bundles=True)
                yield relay_pb2.AttachResponse(attached=accepted)
                if role == "sender":
                    await _take_all(lane, requests)
                    return
                async for bundle in _give_all(lane, requests, BUNDLE_MAX if attach.bundles else 1):
                    yield relay_pb2.AttachResponse(payload=bundle[0], more=bundle[1:])
            finally:
                lane.lose(role)

    def _check_ticket(self, attach: relay_pb2.Attach, role: str) -> None:
        """Raises Unauthenticated for none where one is asked for, PermissionDenied for a wrong one."""
        if not attach.ticket:
            if self._is_open():
                return
            self.board.tally.refused += 1
            raise Unauthenticated("this relay asks for the leader's ticket, and the stage presents none; update it")
        if self._tickets and self._tickets.is_valid(attach.ticket, attach.lane, attach.channel, attach.epoch, role):
            return
        if self._tickets is None and self._is_open():
            return
        self.board.tally.refused += 1
        raise PermissionDenied(
            f"the ticket is not for the {role} of this channel in epoch {attach.epoch}; a relay of its own needs the "
            "leader's SWARM_RELAY_SECRET"
        )


async def _read_attach(requests: AsyncIterator[relay_pb2.AttachRequest]) -> relay_pb2.Attach:
    """The first message, checked. Raises BadRequest."""
    try:
        async with asyncio.timeout(ATTACH_TIMEOUT_S):
            first = await anext(aiter(requests))
    except (TimeoutError, StopAsyncIteration):
        raise BadRequest(f"no Attach within {ATTACH_TIMEOUT_S:g} s", field="attach") from None
    attach = first.attach
    if first.WhichOneof("body") != "attach" or attach.role not in _ROLES:
        raise BadRequest("the first message must be an Attach with a role", field="attach")
    if not attach.epoch or not 0 < len(attach.lane) <= NAME_MAX or not 0 < len(attach.channel) <= NAME_MAX:
        raise BadRequest(
            f"an Attach names lane and channel in 1..{NAME_MAX} characters and an epoch from 1", field="lane"
        )
    return attach


async def _take_all(lane: Lane, requests: AsyncIterator[relay_pb2.AttachRequest]) -> None:
    """Queue what the sender sends, until it stops or the lane ends."""

    async def take() -> None:
        async for request in requests:
            await lane.put(request.payload)
            for payload in request.more:
                await lane.put(payload)

    async def watch() -> None:
        # An idle sender is not in put(); it must hear of the receiver's end all the same.
        await lane.wait_ended()

    await run_until_first(take(), watch())


async def _give_all(
    lane: Lane, requests: AsyncIterator[relay_pb2.AttachRequest], bundle_max: int
) -> AsyncIterator[list[bytes]]:
    """What the receiver gets, until the lane ends or the receiver closes its side."""
    closing = asyncio.ensure_future(_drain(requests))
    closing.add_done_callback(lambda _: lane.stop_receiving())
    try:
        while bundle := await lane.get_bundle(bundle_max, BUNDLE_BYTES_MAX):
            yield bundle
    finally:
        closing.cancel()
        await asyncio.gather(closing, return_exceptions=True)


async def _drain(requests: AsyncIterator[relay_pb2.AttachRequest]) -> None:
    """A receiver sends nothing more; this returns when it closes."""
    async for _ in requests:
        pass
