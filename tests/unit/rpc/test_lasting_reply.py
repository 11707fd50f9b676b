"""One reply over several calls: what is asked for next, when it ends, and with whose error. Time is virtual."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from typing import Any

import pytest
from silentswarm.core.v1 import generation_pb2
from silentswarm.leader.v1 import inference_pb2
from swarm_core.errors import (
    CapabilityMissing,
    Conflict,
    ContextTooLong,
    ReplyNotFound,
    StageFailed,
    SwarmError,
    Unavailable,
)
from swarm_rpc.lasting_reply import Ask, lasting_events

from tests.unit.leader.virtual_time import VirtualLoop

Event = generation_pb2.GenerationEvent
Said = Event | SwarmError
ORDER = inference_pb2.GenerateRequest(model_id="tiny", request_id="r1")
AWAY = Unavailable("nobody is there")


def started() -> Event:
    """The first event."""
    return Event(sequence=1, started=Event.Started(prompt_tokens=3, seed=9))


def token(sequence: int) -> Event:
    """One token; its id tells its sequence."""
    return Event(sequence=sequence, tokens=Event.TokenBatch(text=f"{sequence} ", ids=[100 + sequence]))


def done(sequence: int) -> Event:
    """The end."""
    return Event(sequence=sequence, done=Event.Done(finish_reason=generation_pb2.FINISH_REASON_STOP))


class ScriptedCaller:
    """Implements ReplyCaller: each call says the next script's events; the last script is said again and again."""

    def __init__(self, *scripts: Sequence[Said]) -> None:
        self._scripts = list(scripts)
        self.asked: list[Ask] = []
        self.timeouts_s: list[float] = []
        self.lost: list[int] = []
        self.open = 0

    async def events(self, ask: Ask, timeout_s: float) -> AsyncGenerator[inference_pb2.GenerateEvent, None]:
        self.asked.append(ask)
        self.timeouts_s.append(timeout_s)
        self.open += 1
        try:
            for said in self._scripts.pop(0) if len(self._scripts) > 1 else self._scripts[0]:
                if isinstance(said, SwarmError):
                    raise said
                yield inference_pb2.GenerateEvent(request_id="r1", event=said)
        finally:
            self.open -= 1

    def is_lost(self, error: SwarmError, is_heard: bool) -> bool:
        return is_heard and isinstance(error, Unavailable)

    def is_too_old(self, error: SwarmError) -> bool:
        return isinstance(error, CapabilityMissing)

    def tell_lost(self, sequence: int) -> None:
        self.lost.append(sequence)

    def cut_short(self) -> SwarmError:
        return StageFailed("cut short")


async def read_all(caller: ScriptedCaller, timeout_s: float = 60, resume_s: float = 10) -> list[int]:
    """The sequences that came."""
    return [answer.event.sequence async for answer in lasting_events(caller, ORDER, timeout_s, resume_s)]


def in_virtual_time(act: Callable[[], Coroutine[Any, Any, Any]]) -> tuple[Any, float]:
    """What comes of it, and how long it took."""
    loop = VirtualLoop()
    try:
        began_s = loop.time()
        return loop.run_until_complete(act()), loop.time() - began_s
    finally:
        loop.close()


def failure_of(caller: ScriptedCaller, **bounds: float) -> tuple[SwarmError, float]:
    """How the reply failed, and when."""

    async def read() -> SwarmError:
        with pytest.raises(SwarmError) as failed:
            await read_all(caller, **bounds)
        return failed.value

    return in_virtual_time(read)


def test_a_reply_that_nothing_disturbs_is_one_call():
    caller = ScriptedCaller([started(), token(2), done(3)])
    came, took_s = in_virtual_time(lambda: read_all(caller))

    assert (came, caller.asked, caller.lost, took_s) == ([1, 2, 3], [ORDER], [], 0)


def test_what_was_kept_goes_on_and_nothing_comes_twice():
    caller = ScriptedCaller([started(), token(2), AWAY], [AWAY], [token(2), token(3), done(4)])
    came, _ = in_virtual_time(lambda: read_all(caller))

    assert came == [1, 2, 3, 4]
    assert caller.asked[1:] == [inference_pb2.ResumeRequest(request_id="r1", after_sequence=2)] * 2
    assert (caller.lost, caller.open) == ([2], 0)


def test_what_nobody_kept_is_made_again_at_once_from_its_tokens():
    caller = ScriptedCaller([started(), token(2), AWAY], [ReplyNotFound("gone")], [token(3), done(4)])
    came, took_s = in_virtual_time(lambda: read_all(caller))

    again = caller.asked[2]
    assert came == [1, 2, 3, 4]
    assert isinstance(again, inference_pb2.GenerateRequest)
    assert list(again.generation.resume.ids) == [102]
    assert (again.generation.resume.sequence, again.generation.sampling.seed) == (2, 9)
    assert took_s == pytest.approx(0.25)


def test_one_that_only_waited_is_asked_for_as_it_was():
    caller = ScriptedCaller([Event(queued=Event.Queued(position=1)), AWAY], [started(), done(2)])
    came, _ = in_virtual_time(lambda: read_all(caller))

    assert (came, caller.asked) == ([0, 1, 2], [ORDER, ORDER])


def test_a_call_of_it_that_is_still_known_is_waited_for():
    caller = ScriptedCaller([started(), AWAY], [Conflict("it runs")], [Conflict("it runs")], [done(2)])
    came, took_s = in_virtual_time(lambda: read_all(caller))

    assert (came, took_s) == ([1, 2], pytest.approx(0.75))


def test_a_leader_that_stays_away_ends_it_with_the_error_that_began_it():
    first = Unavailable("it stops")
    error, took_s = failure_of(ScriptedCaller([started(), first], [AWAY]), resume_s=5)

    assert error is first
    assert 5 <= took_s < 5.5


def test_each_interruption_has_its_own_time():
    away = [[AWAY]] * 12  # 3 s
    caller = ScriptedCaller([started(), AWAY], *away, [token(2), AWAY], *away, [done(3)])
    came, took_s = in_virtual_time(lambda: read_all(caller, resume_s=4))

    assert (came, caller.lost) == ([1, 2, 3], [1, 2])
    assert took_s > 6


def test_no_interruption_outlives_the_reply_s_own_deadline():
    caller = ScriptedCaller([started(), AWAY], [AWAY])
    error, took_s = failure_of(caller, timeout_s=2, resume_s=60)

    assert isinstance(error, Unavailable)
    assert 2 <= took_s < 2.5
    assert caller.timeouts_s == sorted(caller.timeouts_s, reverse=True)


def test_a_failure_of_the_reply_itself_ends_it_at_once():
    error, took_s = failure_of(ScriptedCaller([started(), ContextTooLong("too long")]))
    later, _ = failure_of(ScriptedCaller([started(), AWAY], [ContextTooLong("too long")]))

    assert (type(error), took_s, type(later)) == (ContextTooLong, 0, ContextTooLong)


def test_a_leader_that_never_answered_is_told_at_once():
    error, took_s = failure_of(ScriptedCaller([AWAY]))

    assert (error, took_s) == (AWAY, 0)


def test_a_leader_too_old_to_resume_ends_it_as_it_broke():
    first = Unavailable("it stops")
    caller = ScriptedCaller([started(), first], [CapabilityMissing("no such call")])

    assert failure_of(caller)[0] is first


def test_a_reply_without_its_end_is_an_error_in_the_caller_s_words():
    assert failure_of(ScriptedCaller([started(), token(2)]))[0].message == "cut short"


def test_a_failed_event_is_raised():
    failed = Event(sequence=2, failed=Event.Failed(message="the stage died"))

    assert failure_of(ScriptedCaller([started(), failed]))[0].message == "the stage died"


def test_closing_it_ends_the_call():
    caller = ScriptedCaller([started(), token(2), done(3)])

    async def leave() -> int:
        events = lasting_events(caller, ORDER, 60, 10)
        await anext(events)
        before = caller.open
        await events.aclose()
        return before

    before, _ = in_virtual_time(leave)
    assert (before, caller.open) == (1, 0)


def test_cancelling_its_reader_ends_the_call():
    async def act() -> int:
        caller = StuckCaller()
        reading = asyncio.create_task(read_all(caller))
        await asyncio.sleep(1)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        return caller.open

    assert in_virtual_time(act)[0] == 0


class StuckCaller(ScriptedCaller):
    """Says one event and then nothing."""

    def __init__(self) -> None:
        super().__init__([started()])

    async def events(self, ask: Ask, timeout_s: float) -> AsyncGenerator[inference_pb2.GenerateEvent, None]:
        async for answer in super().events(ask, timeout_s):
            yield answer
            await asyncio.sleep(timeout_s)
