"""The events of one generation, over as many calls as it takes: a leader that is restarted costs its reader a pause."""

import asyncio
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any

import structlog
from silentswarm.leader.v1 import inference_pb2
from swarm_core.errors import Reason, StageFailed, SwarmError
from swarm_rpc.reasons import error_from_proto
from swarm_rpc.reply_course import ReplyCourse

from swarm_gateway.leader import Events, Leader, LeaderError, LeaderTooOld
from swarm_gateway.openai.replies.asked import Event
from swarm_gateway.problems import HttpProblem

log = structlog.get_logger()
REDIAL_S = 0.25  # between calls to a leader that is away; its channel connects when it can
# How a call ends that lost its leader, in grpc's words; a leader that stops says UNAVAILABLE itself.
_LOST = (Reason.UNAVAILABLE, Reason.CANCELLED, Reason.INTERNAL)


class LastingEvents:
    """One generation; use as `async with`, which ends it. timeout_s: for all of it. resume_s: for each interruption."""

    def __init__(self, leader: Leader, order: inference_pb2.GenerateRequest, timeout_s: float, resume_s: float) -> None:
        self._leader = leader
        self._course = ReplyCourse(order)
        self._loop = asyncio.get_running_loop()
        self._deadline_s = self._loop.time() + timeout_s
        self._resume_s = resume_s
        self._call: Events[inference_pb2.GenerateEvent] | None = None
        self._calls = AsyncExitStack()
        self._had_leader = False  # it was there when the generation was asked for
        self._is_heard = False  # the leader took it: it said where it stands, or more
        self._is_later = False  # this is not the first call
        self._broke: SwarmError | None = None  # since the last event
        self._until_s = 0.0

    async def __aenter__(self) -> "LastingEvents":
        self._had_leader = self._leader.is_connected
        await self._open(self._leader.generate(self._course.order(), self._left_s()))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._calls.aclose()

    async def next(self) -> Event:
        """The next event. Raises SwarmError for a failure, and for a reply that ends without its Done; HttpProblem.

        Nothing comes twice and nothing is left out, whatever became of the leader meanwhile.
        """
        while True:
            try:
                event = await self._read()
            except (SwarmError, HttpProblem) as error:
                await self._go_on(error)
                continue
            self._is_heard = True
            if event.sequence:
                if self._is_later and event.sequence <= self._course.sequence:
                    continue
                self._course.take(event)
                self._broke = None
            return event

    async def _read(self) -> Event:
        if self._call is None:
            raise StageFailed("the reply broke off before its end")
        message = await self._call.read()
        if message is None:
            raise StageFailed("the reply broke off before its end")
        event = message.event
        if event.HasField("failed"):
            failed = event.failed
            raise error_from_proto(failed.reason, failed.message, failed.metadata)
        return event

    async def _go_on(self, error: SwarmError | HttpProblem) -> None:
        """Make another call, unless the reply is over. Raises why it is."""
        if self._broke is None:
            if not self._is_lost(error):
                raise error
            self._broke, self._until_s = error, self._loop.time() + self._resume_s
            log.warning("the leader was lost in a reply; it goes on when it is back", had=self._course.sequence)
        is_gone = isinstance(error, SwarmError) and error.why is Reason.REPLY_NOT_FOUND
        # An older call of this reply may still be known; it ends soon.
        may_come = self._is_lost(error) or (isinstance(error, SwarmError) and error.why is Reason.CONFLICT)
        if isinstance(error, LeaderTooOld):
            raise self._broke
        if not is_gone and not may_come:
            raise error
        if self._loop.time() >= min(self._until_s, self._deadline_s):
            raise self._broke
        await self._calls.aclose()
        self._call, self._is_later = None, True
        if is_gone or not self._course.has_begun:
            if not is_gone:
                await asyncio.sleep(REDIAL_S)
            await self._open(self._leader.generate(self._course.order(), self._left_s()))
        else:
            await asyncio.sleep(REDIAL_S)
            await self._open(self._leader.resume(self._course.rest(), self._left_s()))

    def _is_lost(self, error: SwarmError | HttpProblem) -> bool:
        """Whether the call lost its leader, rather than heard from it. One that never had one is refused at once."""
        if self._leader.stopping or self._resume_s <= 0 or not isinstance(error, SwarmError):
            return False
        if isinstance(error, LeaderError):
            return self._is_heard and error.why is Reason.UNAVAILABLE  # it stops
        if isinstance(error, StageFailed | LeaderTooOld):
            return False
        return (self._had_leader or self._is_heard) and error.why in _LOST

    async def _open(self, call: Any) -> None:
        self._call = await self._calls.enter_async_context(call)

    def _left_s(self) -> float:
        return max(0.01, self._deadline_s - self._loop.time())
