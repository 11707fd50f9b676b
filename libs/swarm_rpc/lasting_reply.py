"""The events of one reply, over as many calls as it takes: a leader that is restarted costs its reader a pause.

What an error of a call means is its caller's to say; makes no call itself.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Protocol, TypeAlias

from silentswarm.leader.v1 import inference_pb2
from swarm_core.errors import Reason, SwarmError

from swarm_rpc.reasons import error_from_proto
from swarm_rpc.reply_course import ReplyCourse

REDIAL_S = 0.25  # between calls to a leader that is away; its channel connects when it can
CALL_MIN_S = 0.01  # grpc takes no deadline that is over
Ask: TypeAlias = inference_pb2.GenerateRequest | inference_pb2.ResumeRequest


class ReplyCaller(Protocol):
    """How one program calls its leader, and what failures mean to it."""

    def events(self, ask: Ask, timeout_s: float) -> AsyncGenerator[inference_pb2.GenerateEvent, None]:
        """One call. Closing it cancels the call. Raises SwarmError; anything else ends the reply."""

    def is_lost(self, error: SwarmError, is_heard: bool) -> bool:
        """Whether a call lost its leader, rather than heard from it why it failed. is_heard: it answered once."""

    def is_too_old(self, error: SwarmError) -> bool:
        """Whether the leader that answers now knows no such call: the reply then ends as it first broke."""

    def tell_lost(self, sequence: int) -> None:
        """The leader was lost, and is waited for from here on. sequence: of the last event that came, 0 for none."""

    def cut_short(self) -> SwarmError:
        """What a call is that ends without the reply's last event."""


async def lasting_events(
    caller: ReplyCaller, order: inference_pb2.GenerateRequest, timeout_s: float, resume_s: float
) -> AsyncGenerator[inference_pb2.GenerateEvent, None]:
    """Every event up to Done, none twice and none left out, whatever became of the leader meanwhile.

    order: names its request. timeout_s: for all of it. resume_s: for each interruption; the error that began it is
    raised when that is over. Raises SwarmError, and whatever else the caller's calls raise.
    """
    loop, course = asyncio.get_running_loop(), ReplyCourse(order)
    deadline_s = loop.time() + timeout_s
    breaks = _Breaks(caller, resume_s, deadline_s)
    ask: Ask = order
    is_later = False
    while True:
        try:
            async with aclosing(caller.events(ask, max(CALL_MIN_S, deadline_s - loop.time()))) as answers:
                async for answer in answers:
                    event = answer.event
                    if event.HasField("failed"):
                        raise error_from_proto(event.failed.reason, event.failed.message, event.failed.metadata)
                    breaks.is_heard = True
                    if event.sequence:
                        if is_later and event.sequence <= course.sequence:
                            continue  # an older call had it
                        course.take(event)
                        breaks.broke = None
                    yield answer
                    if event.HasField("done"):
                        return
            raise caller.cut_short()
        except SwarmError as error:
            breaks.take(error, course.sequence, loop.time())
            is_gone = error.why is Reason.REPLY_NOT_FOUND
        ask, is_later = _next_ask(course, is_gone), True
        if not is_gone:
            await asyncio.sleep(REDIAL_S)


class _Breaks:
    """Which breaks another call may help with. broke: the first since the last numbered event, None for none."""

    def __init__(self, caller: ReplyCaller, resume_s: float, deadline_s: float) -> None:
        self._caller = caller
        self._resume_s = resume_s
        self._deadline_s = deadline_s
        self._until_s = 0.0
        self.is_heard = False
        self.broke: SwarmError | None = None

    def take(self, error: SwarmError, sequence: int, now_s: float) -> None:
        """A call broke: returns when another may be made. Raises why the reply is over."""
        is_lost = self._caller.is_lost(error, self.is_heard)
        if self.broke is None:
            if not is_lost:
                raise error
            self.broke, self._until_s = error, min(now_s + self._resume_s, self._deadline_s)
            self._caller.tell_lost(sequence)
        if self._caller.is_too_old(error):
            raise self.broke from None
        # An older call of this reply may still be known (CONFLICT); it ends soon.
        if not is_lost and error.why not in (Reason.REPLY_NOT_FOUND, Reason.CONFLICT):
            raise error
        if now_s >= self._until_s:
            raise self.broke from None


def _next_ask(course: ReplyCourse, is_gone: bool) -> Ask:
    """How the rest is asked for. is_gone: no fellow keeps it, so it is made anew from its tokens."""
    return course.order() if is_gone or not course.has_begun else course.rest()
