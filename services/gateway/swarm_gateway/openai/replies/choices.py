"""The events of a request's generations, as they come. A request that fails in one of them fails; the others end."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack

from silentswarm.leader.v1 import inference_pb2
from swarm_core.errors import StageFailed
from swarm_rpc.reasons import error_from_proto

from swarm_gateway.leader import Events, Leader
from swarm_gateway.openai.replies.asked import Event

GenerateEvents = Events[inference_pb2.GenerateEvent]


async def choice_events(
    leader: Leader, orders: Sequence[inference_pb2.GenerateRequest], timeout_s: float
) -> AsyncGenerator[tuple[int, Event], None]:
    """(choice, event) until the last Done. Closing this ends every generation. Raises SwarmError, HttpProblem.

    Nothing is read ahead beyond one event of each choice, so a slow reader slows the leader.
    """
    async with AsyncExitStack() as stack:
        streams = [await stack.enter_async_context(leader.generate(order, timeout_s)) for order in orders]
        if len(streams) == 1:
            event = await next_event(streams[0])
            while True:
                yield 0, event
                if event.HasField("done"):
                    return
                event = await next_event(streams[0])
        reads = {asyncio.ensure_future(next_event(stream)): at for at, stream in enumerate(streams)}
        try:
            while reads:
                came, _ = await asyncio.wait(reads, return_when=asyncio.FIRST_COMPLETED)
                for read in sorted(came, key=reads.__getitem__):
                    at, event = reads.pop(read), await read
                    yield at, event
                    if not event.HasField("done"):
                        reads[asyncio.ensure_future(next_event(streams[at]))] = at
        finally:
            for read in reads:
                read.cancel()
            await asyncio.gather(*reads, return_exceptions=True)


async def next_event(events: GenerateEvents) -> Event:
    """The next event of a reply. Raises SwarmError for a failure, and for a reply that ends without its Done."""
    message = await events.read()
    if message is None:
        raise StageFailed("the reply broke off before its end")
    event = message.event
    if event.HasField("failed"):
        failed = event.failed
        raise error_from_proto(failed.reason, failed.message, failed.metadata)
    return event
