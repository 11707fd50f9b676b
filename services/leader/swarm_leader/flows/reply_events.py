"""The events of one attempt at a reply, as its fellow sends them, within their time. Opens nothing."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from silentswarm.core.v1 import generation_pb2
from swarm_core.errors import DeadlinePassed, FellowLost, Reason, RemoteError, SwarmError

from swarm_leader.config import LeaderConfig
from swarm_leader.domain.told import cut_words
from swarm_leader.flows.board import Placement
from swarm_leader.flows.caller import Caller
from swarm_leader.flows.faults import Faults
from swarm_leader.flows.gate import Turn
from swarm_leader.flows.measure import ReplyMeter
from swarm_leader.flows.registry import Registry
from swarm_leader.flows.replies import Replies
from swarm_leader.flows.reply import Reply
from swarm_leader.flows.reply_course import ReplyCourse
from swarm_leader.flows.reply_timing import join_attempts
from swarm_leader.flows.signals import read_reason
from swarm_leader.flows.words import say_way

Events = AsyncGenerator[generation_pb2.GenerationEvent, None]


class ReplyEvents:
    """Reads replies."""

    def __init__(self, registry: Registry, faults: Faults, replies: Replies, config: LeaderConfig) -> None:
        self._registry = registry
        self._faults = faults
        self._replies = replies
        self._config = config

    async def read(self, reply: Reply, turn: Turn, placement: Placement, deadline_s: float) -> Events:
        """Events until the last; each within the progress time, all within the deadline.

        Raises DeadlinePassed, what failed the reply here, and RemoteError with what the fellow failed it for.
        """
        loop = asyncio.get_running_loop()
        epoch, way = placement.record.epoch, say_way(placement.record)
        waited_for = f"fellow {reply.link.fellow_name}"
        positions, is_queued = self._positions(placement), False
        while True:
            silent_s = loop.time() + self._config.progress_timeout_s
            try:
                async with asyncio.timeout_at(min(deadline_s, silent_s)):
                    event = await reply.next()
            except TimeoutError:
                computed = self._positions(placement)
                if loop.time() < deadline_s and (is_queued or reply.is_adrift or computed != positions):
                    # A long prompt has no events, yet the stage computes; who waits for KV waits for another reply.
                    positions = computed
                    continue
                is_total = loop.time() >= deadline_s
                late = too_late(self._config, waited_for, is_total)
                reply.fail(late)
                if not is_total:
                    self._faults.take_stall(placement, epoch, late.message)
                raise late from None
            kind = event.WhichOneof("event")
            if is_queued or kind == "queued":
                is_queued = kind == "queued"
                turn.hold(is_queued)
            if kind == "failed":
                failed = event.failed
                reason = read_reason(failed.reason)
                if reason is Reason.REPLY_NOT_FOUND:  # it went on alone for too long
                    raise FellowLost(failed.message, fellow=reply.link.fellow_name)
                raise RemoteError(reason, cut_words(failed.message), **dict(failed.metadata))
            if kind == "done":
                event.done.timing.route = way
            yield event
            if kind == "done":
                return

    async def follow(
        self,
        caller: Caller,
        reply: Reply,
        turn: Turn,
        meter: ReplyMeter,
        placement: Placement,
        course: ReplyCourse,
        deadline_s: float,
        before_ms: float = 0.0,
    ) -> Events:
        """The same, noted in the reply's course and by its meter; the reply is closed at the end.

        before_ms: since the first attempt at it, 0 for the first, or unknown.
        """
        caller.follow(reply)
        try:
            async with aclosing(self.read(reply, turn, placement, deadline_s)) as events:
                async for event in events:
                    kind = event.WhichOneof("event")
                    if kind == "done" and course.is_interrupted:
                        join_attempts(event.done, before_ms)
                    meter.take_event(event, kind)
                    course.take(event)
                    yield event
        finally:
            self._replies.close(reply)

    def _positions(self, placement: Placement) -> int:
        """Positions stage 0 has computed, as of the last heartbeat."""
        status = self._registry.status_of(placement.record.stages[0].fellow_id, placement.record.placement_id)
        return status.positions if status is not None else 0


def too_late(config: LeaderConfig, waited_for: str, is_total: bool = True) -> SwarmError:
    """A reply ran out of time: all of it, or that between two events."""
    limit_s = config.request_timeout_s if is_total else config.progress_timeout_s
    what = "was not done" if is_total else "made no progress"
    return DeadlinePassed(f"the reply {what} within {limit_s:g} s; waited for {waited_for}", waited_for=waited_for)


async def metered(events: Events, meter: ReplyMeter) -> Events:
    """The same events; the meter hears of the end."""
    try:
        async with aclosing(events):
            async for event in events:
                yield event
    except SwarmError as error:
        meter.take_failure(error)
        raise
    except Exception:
        meter.take_failure(SwarmError("internal error"))
        raise
    finally:
        meter.take_cancel()  # what has no end until here has lost its caller
