"""Direct links: this stage dials the next one and is dialled by the previous one."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Protocol

import grpc
from silentswarm.ring.v1 import ring_pb2, ring_pb2_grpc
from swarm_core.errors import BadRequest, LinkBroken, PermissionDenied, Reason, StaleEpoch, SwarmError
from swarm_rpc.channel import dial
from swarm_rpc.errors import error_of
from swarm_rpc.limits import FRAME_BYTES_MAX
from swarm_rpc.race import run_until_first
from swarm_rpc.tls import Trust
from swarm_rpc.tls_words import explain

from swarm_stage.ring.certificates import names_of
from swarm_stage.ring.link import WIRE_VERSION, LinkKeys, RingPlace
from swarm_stage.ring.proof import hello_proof, is_equal, welcome_proof

HELLO_TIMEOUT_S = 2.0  # a reachable stage answers a hello in milliseconds
UNREACHABLE_AFTER_S = 3.0  # a home router that drops packets never answers; the relay is waiting
RETRY_S = 0.05
MESSAGE_BYTES_MAX = FRAME_BYTES_MAX + 64 * 1024  # a frame's tensor and what is around it


class DirectLink:
    """An accepted Ring.Link call to the next stage."""

    def __init__(self, channel: grpc.aio.Channel, call: grpc.aio.StreamStreamCall, address: str) -> None:
        self.address = address
        self._channel = channel
        self._call = call

    async def send(self, batches: Sequence[ring_pb2.FrameBatch]) -> None:
        try:
            for batch in batches:
                await self._call.write(ring_pb2.LinkRequest(batch=batch))
        except (grpc.RpcError, asyncio.InvalidStateError) as error:
            raise LinkBroken(f"the link to {self.address} broke while sending") from error

    async def wait_broken(self, on_beat: Callable[[ring_pb2.Beat], None]) -> str:
        try:
            while (response := await self._call.read()) is not grpc.aio.EOF:
                if response.HasField("beat"):
                    on_beat(response.beat)
            return f"{self.address} closed the link"
        except grpc.RpcError as error:
            return f"{self.address}: {error_of(error).message}"

    async def close(self) -> None:
        self._call.cancel()
        await self._channel.close()


async def dial_next(
    place: RingPlace,
    epoch: int,
    addresses: Sequence[str],
    timeout_s: float,
    keys: LinkKeys | None = None,
    trust: Trust | None = None,
) -> DirectLink:
    """Reach the next stage at the first address that answers.

    A stage that answers but has not joined this epoch yet is asked again until timeout_s; one that does not answer is
    given up after UNREACHABLE_AFTER_S, and one that is not who it should be at once. keys: what both ends prove; trust:
    what the certificate must be; None: nothing is asked. Raises LinkBroken that lists what was tried.
    """
    loop = asyncio.get_running_loop()
    started_s = loop.time()
    refusals: dict[str, str] = {}
    left = list(addresses)
    while left:
        answered = False
        for address in tuple(left):
            try:
                return await _hello(place, epoch, address, keys, trust)
            except SwarmError as error:
                told = await explain(address, trust, "this stage") if error.why is Reason.UNAVAILABLE else ""
                refusals[address] = told or error.message
                answered = answered or error.why is Reason.STALE_EPOCH
                if told or error.why in (Reason.PERMISSION_DENIED, Reason.UNAUTHENTICATED):
                    left.remove(address)
        elapsed_s = loop.time() - started_s
        if elapsed_s > timeout_s or (not answered and elapsed_s > min(timeout_s, UNREACHABLE_AFTER_S)):
            break
        await asyncio.sleep(RETRY_S)
    tried = "; ".join(f"{address}: {why}" for address, why in refusals.items()) or "it listens nowhere"
    raise LinkBroken(f"stage {place.next_stage} is not reachable directly ({tried})", stage=place.next_stage)


async def _hello(place: RingPlace, epoch: int, address: str, keys: LinkKeys | None, trust: Trust | None) -> DirectLink:
    """One try. Raises LinkBroken, or what the other side refused with."""
    channel = dial(address, MESSAGE_BYTES_MAX, trust)
    call = ring_pb2_grpc.RingStub(channel).Link()
    hello = ring_pb2.Hello(
        wire_version=WIRE_VERSION,
        placement_id=place.placement_id,
        epoch=epoch,
        from_stage=place.stage_index,
        to_stage=place.next_stage,
    )
    if keys:
        hello.proof = hello_proof(keys.next_secret, hello)
    link = DirectLink(channel, call, address)
    try:
        async with asyncio.timeout(HELLO_TIMEOUT_S):
            await call.write(ring_pb2.LinkRequest(hello=hello))
            answer = await call.read()
        if answer is grpc.aio.EOF:
            raise LinkBroken("closed the link instead of a welcome")
        if keys and not is_equal(answer.welcome.proof, welcome_proof(keys.next_secret, hello.proof)):
            raise PermissionDenied("whoever answers there does not hold this link's secret")
        return link
    except BaseException as error:  # also when the wiring is given up: nothing stays open
        failure = await _why_refused(call, error)
        await link.close()
        raise failure from None


async def _why_refused(call: grpc.aio.StreamStreamCall, error: BaseException) -> BaseException:
    """What to raise for a hello that failed."""
    if isinstance(error, TimeoutError):
        return LinkBroken(f"no answer within {HELLO_TIMEOUT_S:g} s")
    if isinstance(error, grpc.RpcError):
        return error_of(error)
    if isinstance(error, asyncio.InvalidStateError):  # the call ended before the hello was written
        return await ended_why(call)
    return error


async def ended_why(call: grpc.aio.StreamStreamCall) -> SwarmError:
    """What a call that has ended says, also when its status came before anything was read."""
    try:
        async with asyncio.timeout(HELLO_TIMEOUT_S):
            await call.wait_for_connection()
            await call.read()
    except grpc.RpcError as error:
        return error_of(error)
    except (asyncio.InvalidStateError, TimeoutError):
        pass
    return LinkBroken("the call was ended")


class IncomingLinks(Protocol):
    """Who takes what the previous stage sends."""

    def accept(self, hello: ring_pb2.Hello, names: Sequence[str]) -> bytes:
        """Returns the proof to welcome it with. names: on the caller's certificate.

        Raises StaleEpoch unless a direct link of this epoch is awaited now, Unauthenticated or PermissionDenied when
        it is not the previous stage that says so.
        """

    async def deliver(self, epoch: int, batch: ring_pb2.FrameBatch) -> None:
        """Take one batch."""

    async def next_answer(self, epoch: int) -> ring_pb2.Beat:
        """The next sign of life for the previous stage, once it is due."""

    async def wait_over(self, epoch: int) -> None:
        """Return when this epoch is over here."""

    def incoming_ended(self, epoch: int, why: str) -> None:
        """The previous stage's link of this epoch is gone."""


class RingServicer(ring_pb2_grpc.RingServicer):
    """Takes the previous stage's link."""

    def __init__(self, place: RingPlace, incoming: IncomingLinks) -> None:
        self._place = place
        self._incoming = incoming

    async def Link(
        self, requests: AsyncIterator[ring_pb2.LinkRequest], context: grpc.aio.ServicerContext
    ) -> AsyncIterator[ring_pb2.LinkResponse]:
        hello = await _read_hello(requests)
        self._check(hello)
        proof = self._incoming.accept(hello, names_of(context))
        try:
            yield ring_pb2.LinkResponse(welcome=ring_pb2.Welcome(frame_bytes_max=FRAME_BYTES_MAX, proof=proof))
            async for beat in self._answer(hello.epoch, requests):
                yield ring_pb2.LinkResponse(beat=beat)
        finally:
            self._incoming.incoming_ended(hello.epoch, f"stage {hello.from_stage} closed the link")

    async def _answer(self, epoch: int, requests: AsyncIterator[ring_pb2.LinkRequest]) -> AsyncIterator[ring_pb2.Beat]:
        """Take what comes until either end is done with the link; yields signs of life meanwhile."""
        taking = asyncio.ensure_future(
            run_until_first(self._take_all(epoch, requests), self._incoming.wait_over(epoch))
        )
        answering: asyncio.Future[ring_pb2.Beat] | None = None
        try:
            while not taking.done():
                answering = asyncio.ensure_future(self._incoming.next_answer(epoch))
                await asyncio.wait((taking, answering), return_when=asyncio.FIRST_COMPLETED)
                if answering.done() and not taking.done():
                    yield answering.result()
            taking.result()
        finally:
            for task in filter(None, (taking, answering)):
                task.cancel()
            await asyncio.gather(*filter(None, (taking, answering)), return_exceptions=True)

    async def _take_all(self, epoch: int, requests: AsyncIterator[ring_pb2.LinkRequest]) -> None:
        async for request in requests:
            await self._incoming.deliver(epoch, request.batch)

    def _check(self, hello: ring_pb2.Hello) -> None:
        place = self._place
        if hello.wire_version != WIRE_VERSION:
            raise BadRequest(
                f"wire version {hello.wire_version}; this stage speaks {WIRE_VERSION}", field="wire_version"
            )
        if hello.placement_id != place.placement_id:
            raise StaleEpoch(f"this stage serves placement {place.placement_id}, not {hello.placement_id}")
        if (hello.from_stage, hello.to_stage) != (place.previous_stage, place.stage_index):
            raise BadRequest(
                f"stage {hello.from_stage} dialled stage {hello.to_stage}; this is stage {place.stage_index}, "
                f"which hears from stage {place.previous_stage}",
                field="to_stage",
            )


async def _read_hello(requests: AsyncIterator[ring_pb2.LinkRequest]) -> ring_pb2.Hello:
    try:
        async with asyncio.timeout(HELLO_TIMEOUT_S):
            first = await anext(aiter(requests))
    except (TimeoutError, StopAsyncIteration):
        raise BadRequest(f"no hello within {HELLO_TIMEOUT_S:g} s", field="hello") from None
    if first.WhichOneof("body") != "hello":
        raise BadRequest("the first message of a link must be a hello", field="hello")
    return first.hello
