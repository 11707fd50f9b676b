"""What one reply of a token used, counted event by event: also when it fails or its caller leaves. Changes no event."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from silentswarm.core.v1.generation_pb2 import GenerationEvent
from swarm_core.errors import Reason, SwarmError

from swarm_leader.domain.records import TokenUsage

Add = Callable[[TokenUsage], None]


async def counted(events: AsyncGenerator[GenerationEvent, None], add: Add) -> AsyncGenerator[GenerationEvent, None]:
    """The same events; `add` is told once, when the reply began and ends."""
    used, has_begun, is_done = TokenUsage(), False, False
    try:
        async with aclosing(events):
            async for event in events:
                kind = event.WhichOneof("event")
                if kind == "started":
                    has_begun, used = True, used + TokenUsage(requests=1, prompt_tokens=event.started.prompt_tokens)
                elif kind == "tokens":
                    used += TokenUsage(completion_tokens=len(event.tokens.ids))
                elif kind == "done":
                    is_done = True
                    used += TokenUsage(completion_tokens=_beyond(event.done.completion_tokens, used))
                yield event
        is_done = True
    except SwarmError as error:
        is_done = error.why is not Reason.CANCELLED
        raise
    finally:
        if has_begun:
            add(used if is_done else used + TokenUsage(cancelled=1))


def _beyond(total: int, used: TokenUsage) -> int:
    """What the last event counts that the others did not carry."""
    return max(0, total - used.completion_tokens)
