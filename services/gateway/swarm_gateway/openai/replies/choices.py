"""The events of a request's generations, as they come. A request that fails in one of them fails; the others end."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, aclosing

from silentswarm.leader.v1 import inference_pb2

from swarm_gateway.leader import Leader
from swarm_gateway.openai.replies.asked import Event
from swarm_gateway.openai.replies.lasting import generation_events


async def choice_events(
    leader: Leader, orders: Sequence[inference_pb2.GenerateRequest], timeout_s: float, resume_s: float
) -> AsyncGenerator[tuple[int, Event], None]:
    """(choice, event) until the last Done. Closing this ends every generation. Raises SwarmError, HttpProblem.

    resume_s: how long a generation waits for a leader that was lost; each goes on by itself.
    Nothing is read ahead beyond one event of each choice, so a slow reader slows the leader.
    """
    async with AsyncExitStack() as stack:
        streams = [
            await stack.enter_async_context(aclosing(generation_events(leader, order, timeout_s, resume_s)))
            for order in orders
        ]
        if len(streams) == 1:
            async for event in streams[0]:
                yield 0, event
            return
        reads = {_read(stream): at for at, stream in enumerate(streams)}
        try:
            while reads:
                came, _ = await asyncio.wait(reads, return_when=asyncio.FIRST_COMPLETED)
                for read in sorted(came, key=reads.__getitem__):
                    at, event = reads.pop(read), await read
                    yield at, event
                    if not event.HasField("done"):
                        reads[_read(streams[at])] = at
        finally:
            for read in reads:
                read.cancel()
            await asyncio.gather(*reads, return_exceptions=True)


def _read(events: AsyncGenerator[Event, None]) -> "asyncio.Task[Event]":
    """The next event, which is there until Done."""

    async def read() -> Event:
        return await anext(events)

    return asyncio.create_task(read())
