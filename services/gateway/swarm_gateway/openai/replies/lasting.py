"""One generation's calls to the leader, over its restarts: how they are made, and which failures lost the leader."""

from collections.abc import AsyncGenerator

import structlog
from silentswarm.leader.v1 import inference_pb2
from swarm_core.errors import Reason, StageFailed, SwarmError
from swarm_rpc.lasting_reply import Ask, lasting_events

from swarm_gateway.leader import Leader, LeaderError, LeaderTooOld
from swarm_gateway.openai.replies.asked import Event

log = structlog.get_logger()
# How a call ends that lost its leader, in grpc's words; a leader that stops says UNAVAILABLE itself.
_LOST = (Reason.UNAVAILABLE, Reason.CANCELLED, Reason.INTERNAL)


async def generation_events(
    leader: Leader, order: inference_pb2.GenerateRequest, timeout_s: float, resume_s: float
) -> AsyncGenerator[Event, None]:
    """Every event up to Done; closing this ends the generation. timeout_s: for all of it.

    resume_s: for each interruption. Raises SwarmError for a failure, and for a reply that ends without its Done;
    HttpProblem.
    """
    calls = _Calls(leader, may_resume=resume_s > 0)
    events = lasting_events(calls, order, timeout_s, resume_s)
    try:
        async for answer in events:
            yield answer.event
    finally:
        await events.aclose()


class _Calls:
    """Implements ReplyCaller. may_resume: a leader that is lost is waited for."""

    def __init__(self, leader: Leader, may_resume: bool) -> None:
        self._leader = leader
        self._may_resume = may_resume
        self._had_leader = leader.is_connected  # it was there when the generation was asked for

    async def events(self, ask: Ask, timeout_s: float) -> AsyncGenerator[inference_pb2.GenerateEvent, None]:
        is_whole = isinstance(ask, inference_pb2.GenerateRequest)
        call = self._leader.generate(ask, timeout_s) if is_whole else self._leader.resume(ask, timeout_s)
        async with call as answers:
            while (answer := await answers.read()) is not None:
                yield answer

    def is_lost(self, error: SwarmError, is_heard: bool) -> bool:
        """One that never had a leader is refused at once."""
        if self._leader.stopping or not self._may_resume:
            return False
        if isinstance(error, LeaderError):
            return is_heard and error.why is Reason.UNAVAILABLE  # it stops
        if isinstance(error, StageFailed | LeaderTooOld):
            return False
        return (self._had_leader or is_heard) and error.why in _LOST

    def is_too_old(self, error: SwarmError) -> bool:
        return isinstance(error, LeaderTooOld)

    def tell_lost(self, sequence: int) -> None:
        log.warning("the leader was lost in a reply; it goes on when it is back", had=sequence)

    def cut_short(self) -> SwarmError:
        return StageFailed("the reply broke off before its end")
