"""fellow.v1.InferenceLink: a hello first, then requests and cancels down, events of replies up. Thin."""

import asyncio
from collections.abc import AsyncIterator

import grpc
import structlog
from silentswarm.fellow.v1 import inference_link_pb2 as link_pb2
from silentswarm.fellow.v1 import inference_link_pb2_grpc
from swarm_core.errors import BadRequest, Conflict, FellowLost

from swarm_leader.flows.registry import Fellow, Registry
from swarm_leader.flows.replies import InferenceLink, Replies
from swarm_leader.rpc.access import check_own, current_caller

log = structlog.get_logger()

HELLO_TIMEOUT_S = 10.0
KEPT_MAX = 1024  # replies that one fellow may name


class InferenceLinkServicer(inference_link_pb2_grpc.InferenceLinkServicer):
    """One stream a fellow."""

    def __init__(self, registry: Registry, replies: Replies) -> None:
        self._registry = registry
        self._replies = replies

    async def Serve(
        self, requests: AsyncIterator[link_pb2.ServeRequest], context: grpc.aio.ServicerContext
    ) -> AsyncIterator[link_pb2.ServeResponse]:
        hello = await _read_hello(requests)
        fellow_id = hello.fellow_id
        check_own(current_caller(), fellow_id)
        # Raises FellowLost for a fellow that has not registered, or not again: it is to Connect first.
        name = self._registry.link_of(fellow_id).fellow_name
        _check_process(self._registry.get(fellow_id), hello.process_nonce, context.peer())
        link: InferenceLink = InferenceLink(fellow_id, name)
        gone = FellowLost(f"its inference link broke ({context.peer()})", fellow=name)
        context.add_done_callback(lambda _: link.end(gone))
        await self._replies.attach(link, list(hello.kept)[:KEPT_MAX])
        reading = asyncio.create_task(self._read(link, requests, gone))
        try:
            while True:
                yield await link.next()
        finally:
            reading.cancel()
            link.end(gone)

    async def _read(
        self, link: InferenceLink, requests: AsyncIterator[link_pb2.ServeRequest], gone: FellowLost
    ) -> None:
        """Events, until the stream ends; then the link does."""
        try:
            async for request in requests:
                if request.WhichOneof("body") == "event":
                    self._replies.take_event(link, request.event.request_id, request.event.event)
        finally:
            link.end(gone)


def _check_process(fellow: Fellow | None, process_nonce: str, peer: str) -> None:
    """Requests go to the process that registered, not to one with a copy of its state folder. Raises Conflict."""
    if fellow is None or not fellow.process_nonce or process_nonce == fellow.process_nonce:
        return
    log.warning("a second process of one machine is refused", fellow=fellow.name, first=fellow.peer, second=peer)
    raise Conflict(
        f"fellow {fellow.name} is connected by another process, from {fellow.peer}; requests go to that one",
        fellow=fellow.name,
    )


async def _read_hello(requests: AsyncIterator[link_pb2.ServeRequest]) -> link_pb2.InferenceHello:
    """Which fellow, which process. Raises BadRequest."""
    try:
        async with asyncio.timeout(HELLO_TIMEOUT_S):
            first = await anext(aiter(requests))
    except (TimeoutError, StopAsyncIteration):
        raise BadRequest(f"no hello within {HELLO_TIMEOUT_S:g} s", field="hello") from None
    if first.WhichOneof("body") != "hello":
        raise BadRequest("the first message must be a hello", field="hello")
    return first.hello
