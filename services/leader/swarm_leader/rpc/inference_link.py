"""fellow.v1.InferenceLink: a hello first, then requests and cancels down, events of replies up. Thin."""

import asyncio
from collections.abc import AsyncIterator

import grpc
from silentswarm.fellow.v1 import inference_link_pb2 as link_pb2
from silentswarm.fellow.v1 import inference_link_pb2_grpc
from swarm_core.errors import BadRequest, FellowLost

from swarm_leader.flows.registry import Registry
from swarm_leader.flows.replies import InferenceLink, Replies
from swarm_leader.rpc.access import check_own, current_caller

HELLO_TIMEOUT_S = 10.0


class InferenceLinkServicer(inference_link_pb2_grpc.InferenceLinkServicer):
    """One stream a fellow."""

    def __init__(self, registry: Registry, replies: Replies) -> None:
        self._registry = registry
        self._replies = replies

    async def Serve(
        self, requests: AsyncIterator[link_pb2.ServeRequest], context: grpc.aio.ServicerContext
    ) -> AsyncIterator[link_pb2.ServeResponse]:
        fellow_id = await _read_hello(requests)
        check_own(current_caller(), fellow_id)
        # Raises FellowLost for a fellow that has not registered, or not again: it is to Connect first.
        name = self._registry.link_of(fellow_id).fellow_name
        link: InferenceLink = InferenceLink(fellow_id, name)
        gone = FellowLost(f"its inference link broke ({context.peer()})", fellow=name)
        context.add_done_callback(lambda _: link.end(gone))
        await self._replies.attach(link)
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


async def _read_hello(requests: AsyncIterator[link_pb2.ServeRequest]) -> str:
    """The fellow's id. Raises BadRequest."""
    try:
        async with asyncio.timeout(HELLO_TIMEOUT_S):
            first = await anext(aiter(requests))
    except (TimeoutError, StopAsyncIteration):
        raise BadRequest(f"no hello within {HELLO_TIMEOUT_S:g} s", field="hello") from None
    if first.WhichOneof("body") != "hello":
        raise BadRequest("the first message must be a hello", field="hello")
    return first.hello.fellow_id
