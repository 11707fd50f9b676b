"""Links through the relay: a sender's end and a receiver's end of one lane."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import grpc
from google.protobuf.message import DecodeError
from silentswarm.relay.v1 import relay_pb2, relay_pb2_grpc
from silentswarm.ring.v1 import ring_pb2
from swarm_core.errors import LinkBroken, Reason, SwarmError
from swarm_rpc.channel import dial
from swarm_rpc.errors import error_of
from swarm_rpc.tls import Trust
from swarm_rpc.tls_words import explain

from swarm_stage.ring.direct import MESSAGE_BYTES_MAX, ended_why
from swarm_stage.ring.link import RingPlace, channel_of

BUNDLE_BYTES_MAX = 2**20  # larger batches go one by one: a bundle saves messages, not bytes


class LaneEnd:
    """One attached end of a lane."""

    def __init__(self, channel: grpc.aio.Channel, call: grpc.aio.StreamStreamCall, address: str) -> None:
        self.address = address
        self.takes_bundles = False  # the relay said so when it accepted the attach
        self._channel = channel
        self._call = call

    async def send(self, batches: Sequence[ring_pb2.FrameBatch]) -> None:
        payloads = [batch.SerializeToString() for batch in batches]
        try:
            for first, *more in self._bundles(payloads):
                await self._call.write(relay_pb2.AttachRequest(payload=first, more=more))
        except (grpc.RpcError, asyncio.InvalidStateError) as error:
            raise LinkBroken(f"the link through the relay at {self.address} broke while sending") from error

    async def wait_broken(self, on_beat: Callable[[ring_pb2.Beat], None]) -> str:
        """on_beat is never called: a lane goes one way. The receiver hears this end's beats."""
        return await self.read_all(_ignore)

    async def read_all(self, take: Callable[[ring_pb2.FrameBatch], Awaitable[None]]) -> str:
        """Hand every batch to `take` until the lane ends; returns why it ended."""
        try:
            while (response := await self._call.read()) is not grpc.aio.EOF:
                await take(ring_pb2.FrameBatch.FromString(response.payload))
                for payload in response.more:
                    await take(ring_pb2.FrameBatch.FromString(payload))
            return f"the relay at {self.address} closed the lane"
        except grpc.RpcError as error:
            return f"the relay at {self.address}: {error_of(error).message}"
        except DecodeError:
            return f"the relay at {self.address} brought bytes that are no frame batch"

    async def close(self) -> None:
        self._call.cancel()
        await self._channel.close()

    def _bundles(self, payloads: list[bytes]) -> list[list[bytes]]:
        is_small = sum(len(payload) for payload in payloads) <= BUNDLE_BYTES_MAX
        return [payloads] if self.takes_bundles and is_small else [[payload] for payload in payloads]


async def attach_sender(
    place: RingPlace, epoch: int, address: str, ticket: bytes = b"", trust: Trust | None = None
) -> LaneEnd:
    """The sending end towards the next stage; the caller sets the deadline. Raises LinkBroken."""
    channel = channel_of(place.stage_index, place.stage_count)
    attach = relay_pb2.Attach(channel=channel, role=relay_pb2.ROLE_SENDER, ticket=ticket)
    return await _attach(place, epoch, attach, address, trust)


async def attach_receiver(
    place: RingPlace, epoch: int, address: str, ticket: bytes = b"", trust: Trust | None = None
) -> LaneEnd:
    """The receiving end from the previous stage; the caller sets the deadline. Raises LinkBroken."""
    channel = channel_of(place.previous_stage, place.stage_count)
    attach = relay_pb2.Attach(channel=channel, role=relay_pb2.ROLE_RECEIVER, ticket=ticket)
    return await _attach(place, epoch, attach, address, trust)


async def _attach(place: RingPlace, epoch: int, attach: relay_pb2.Attach, address: str, trust: Trust | None) -> LaneEnd:
    """Attach as `attach` says, which lacks lane and epoch. trust: what the relay must be; None is plaintext."""
    attach.lane, attach.epoch, attach.bundles = place.placement_id, epoch, True
    channel = dial(address, MESSAGE_BYTES_MAX, trust)
    call = relay_pb2_grpc.RelayStub(channel).Attach()
    end = LaneEnd(channel, call, address)
    try:
        await call.write(relay_pb2.AttachRequest(attach=attach))
        answer = await call.read()
        if answer is grpc.aio.EOF:
            raise LinkBroken("it closed the call")
        end.takes_bundles = answer.attached.bundles
        return end
    except BaseException as error:  # also when the wiring is given up: nothing stays open
        failure = await ended_why(call) if isinstance(error, grpc.RpcError | asyncio.InvalidStateError) else error
        await end.close()
        if isinstance(failure, SwarmError):
            said = failure.message
            if failure.why is Reason.UNAVAILABLE:
                said = await explain(address, trust, "its fellow") or said
            why = f"the relay at {address} did not take channel {attach.channel}: {said}"
            raise LinkBroken(why, relay=address) from None
        raise


async def _ignore(batch: ring_pb2.FrameBatch) -> None:
    """A sender's end brings nothing."""
