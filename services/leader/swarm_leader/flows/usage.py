"""What one reply of a token used, counted event by event: also when it fails or its caller leaves. Changes no event."""

from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from silentswarm.core.v1.generation_pb2 import GenerationEvent
from swarm_core.errors import Reason, SwarmError

from swarm_leader.domain.records import TokenUsage

Add = Callable[[TokenUsage], None]
BROKEN_MAX = 4096  # replies that broke off, remembered in case their callers come back


class Counting:
    """Counts each reply once, however many calls follow it.

    A reply that goes on is counted whole where it ends, prompt and earlier tokens included: the leader that it began
    with was killed and wrote nothing down. Unless it was this one, which counted what came until its caller was lost.
    """

    def __init__(self) -> None:
        self._broken: OrderedDict[str, int] = OrderedDict()  # tokens counted so far, by request

    async def counted(
        self, events: AsyncGenerator[GenerationEvent, None], add: Add, request_id: str, goes_on: bool = False
    ) -> AsyncGenerator[GenerationEvent, None]:
        """The same events; `add` is told once, when the reply has begun here and ends.

        goes_on: its caller has the beginning from another call.
        """
        before = self._broken.pop(request_id, None) if goes_on else None
        used, has_begun, is_done, has_end = TokenUsage(), False, False, False
        try:
            async with aclosing(events):
                async for event in events:
                    kind = event.WhichOneof("event")
                    if kind != "queued" and not has_begun:
                        has_begun, used = True, TokenUsage(requests=1 if before is None else 0)
                    if kind == "started":
                        used += TokenUsage(prompt_tokens=event.started.prompt_tokens)
                    elif kind == "tokens":
                        used += TokenUsage(completion_tokens=len(event.tokens.ids))
                    elif kind == "done":
                        has_end = is_done = True
                        used += _rest(event.done, used, before)
                    yield event
            is_done = True
        except SwarmError as error:
            is_done = error.why is not Reason.CANCELLED
            raise
        finally:
            if has_begun:
                add(used if is_done else used + TokenUsage(cancelled=1))
            if (has_begun or before is not None) and not has_end:
                self._note_broken(request_id, (before or 0) + used.completion_tokens)

    def _note_broken(self, request_id: str, tokens: int) -> None:
        self._broken[request_id] = tokens
        while len(self._broken) > BROKEN_MAX:
            self._broken.popitem(last=False)


def _rest(done: GenerationEvent.Done, used: TokenUsage, before: int | None) -> TokenUsage:
    """What the last event counts that the others did not carry. before: tokens that another call counted here."""
    tokens = max(0, done.completion_tokens - used.completion_tokens - (before or 0))
    is_prompt_missing = before is None and not used.prompt_tokens
    return TokenUsage(completion_tokens=tokens, prompt_tokens=done.prompt_tokens if is_prompt_missing else 0)
