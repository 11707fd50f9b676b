"""A reply is counted once, however many calls its caller needed for it."""

from collections.abc import AsyncGenerator

import pytest
from silentswarm.core.v1 import generation_pb2
from swarm_core.errors import Cancelled, StageFailed, SwarmError
from swarm_leader.domain.records import TokenUsage
from swarm_leader.flows.usage import Counting

Event = generation_pb2.GenerationEvent
STARTED = Event(sequence=1, started=Event.Started(prompt_tokens=3))


def tokens(sequence: int, *ids: int) -> Event:
    """A batch."""
    return Event(sequence=sequence, tokens=Event.TokenBatch(ids=ids))


def done(sequence: int, completion_tokens: int) -> Event:
    """The end."""
    return Event(sequence=sequence, done=Event.Done(prompt_tokens=3, completion_tokens=completion_tokens))


async def replay(*events: Event, ends: SwarmError | None = None) -> AsyncGenerator[Event, None]:
    """Events of a call, and what it ends with."""
    for event in events:
        yield event
    if ends is not None:
        raise ends


async def count(counting: Counting, events: AsyncGenerator[Event, None], goes_on: bool = False) -> TokenUsage:
    """What one call counts."""
    used: list[TokenUsage] = []
    try:
        async for _ in counting.counted(events, used.append, "r1", goes_on):
            pass
    except SwarmError:
        pass
    return sum(used, TokenUsage())


async def test_a_reply_in_one_call_counts_what_the_end_says_that_no_batch_carried():
    used = await count(Counting(), replay(STARTED, tokens(2, 7), done(3, 2)))

    assert used == TokenUsage(requests=1, prompt_tokens=3, completion_tokens=2)


async def test_after_a_restart_the_whole_reply_counts_where_it_ends():
    used = await count(Counting(), replay(tokens(5, 8), done(6, 4)), goes_on=True)

    assert used == TokenUsage(requests=1, prompt_tokens=3, completion_tokens=4)


@pytest.mark.parametrize("ends", [Cancelled("left"), StageFailed("broke")])
async def test_a_caller_that_comes_back_to_the_same_leader_is_counted_no_token_twice(ends):
    counting = Counting()
    first = await count(counting, replay(STARTED, tokens(2, 7, 8), ends=ends))
    second = await count(counting, replay(tokens(3, 9), done(4, 3)), goes_on=True)

    together = first + second

    assert (together.requests, together.prompt_tokens, together.completion_tokens) == (1, 3, 3)


async def test_a_call_that_finds_nothing_counts_nothing():
    assert await count(Counting(), replay(ends=StageFailed("x")), goes_on=True) == TokenUsage()
