"""The events of one reply, over as many calls as it takes: a leader that is restarted costs a pause. Shows nothing."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

from google.protobuf.message import Message
from silentswarm.leader.v1 import inference_pb2
from swarm_core.errors import Reason, SwarmError
from swarm_rpc.reply_course import ReplyCourse

from swarm_cli.failures import LeaderUnreachable
from swarm_cli.leader import Leader

REDIAL_S = 0.25  # between calls to a leader that is away; the channel connects when it can
RESUME_S = 60.0  # a reply waits so long for a leader that was lost in it, as at the gateway
AWAY = "the leader went away; the reply goes on when it is back"


async def reply_events(
    leader: Leader, order: inference_pb2.GenerateRequest, tell: Callable[[str], None]
) -> AsyncGenerator[inference_pb2.GenerateEvent, None]:
    """Every event up to Done, none twice and none left out. Ends within the configured deadline.

    order: names its request. tell: is handed words when the leader was lost. Raises SwarmError; at once when the
    leader never answered.
    """
    loop, course = asyncio.get_running_loop(), ReplyCourse(order)
    deadline_s = loop.time() + leader.config.reply_timeout_s
    broke: SwarmError | None = None  # since the last event of the reply
    is_heard, until_s = False, 0.0
    method: Callable[..., Any] = leader.inference.Generate
    request: Message = order
    while True:
        left_s = max(0.01, deadline_s - loop.time())
        try:
            async with aclosing(leader.follow(method, request, left_s)) as answers:
                async for answer in answers:
                    is_heard = True
                    number = answer.event.sequence
                    if number and number <= course.sequence:
                        continue  # an older call had it
                    if number:
                        course.take(answer.event)
                        broke = None
                    yield answer
                    if answer.event.HasField("done"):
                        return
            raise SwarmError("the reply ended without its last event; see the leader's log")
        except SwarmError as error:
            is_lost = is_heard and _is_lost(error)
            if broke is None:
                if not is_lost:
                    raise
                broke, until_s = error, loop.time() + RESUME_S
                tell(AWAY)
            is_gone = error.why is Reason.REPLY_NOT_FOUND
            if not (is_lost or is_gone or error.why is Reason.CONFLICT):  # an older call of it may still be known
                raise
            if loop.time() >= min(until_s, deadline_s):
                raise broke from None
        method, request = _next_call(leader, course, is_gone)
        await asyncio.sleep(0 if is_gone else REDIAL_S)


def _next_call(leader: Leader, course: ReplyCourse, is_gone: bool) -> tuple[Callable[..., Any], Message]:
    """How the rest is asked for. is_gone: no fellow keeps it, so it is made anew from its tokens."""
    if is_gone or not course.has_begun:
        return leader.inference.Generate, course.order()
    return leader.inference.Resume, course.rest()


def _is_lost(error: SwarmError) -> bool:
    """Whether a call lost its leader, rather than heard why it failed; one that stops says UNAVAILABLE itself."""
    return isinstance(error, LeaderUnreachable) or error.why is Reason.UNAVAILABLE
