"""What a reply goes on with after a break, when it may, and how its timing adds up over attempts."""

import pytest
from silentswarm.core.v1 import generation_pb2
from swarm_core.errors import BadRequest, ContextTooLong, LinkBroken, Overloaded, StageFailed
from swarm_leader.flows.reply_course import FRUITLESS_MAX, ReplyCourse
from swarm_leader.flows.reply_timing import join_attempts

Event = generation_pb2.GenerationEvent
BROKE = LinkBroken("reset")


def feed(course: ReplyCourse, *events: Event) -> None:
    """The caller gets these."""
    for event in events:
        course.take(event)


def started() -> Event:
    """The first event."""
    return Event(sequence=1, started=Event.Started(prompt_tokens=3))


def tokens(sequence: int, *ids: int, text: str = "") -> Event:
    """A batch."""
    return Event(sequence=sequence, tokens=Event.TokenBatch(text=text, ids=ids))


def test_a_reply_of_which_nothing_came_is_asked_for_as_before():
    course = ReplyCourse()
    feed(course, Event(queued=Event.Queued(position=1)))

    assert course.resume() is None
    assert course.may_go_on(BROKE, can_resume=False)


def test_it_goes_on_with_every_token_and_the_last_sequence():
    course = ReplyCourse()
    feed(course, started(), tokens(2, 7, 8), tokens(3), tokens(4, 9))

    resume = course.resume()

    assert resume == generation_pb2.ReplyResume(ids=[7, 8, 9], sequence=4)
    assert not course.may_go_on(BROKE, can_resume=False)


def test_text_without_tokens_is_the_last_of_it_and_an_empty_batch_is_not():
    course = ReplyCourse()
    feed(course, started(), tokens(2, 7), tokens(3))
    assert not course.resume().is_flushed

    feed(course, tokens(4, text="the rest"))

    assert course.resume() == generation_pb2.ReplyResume(ids=[7], sequence=4, is_flushed=True)


def test_what_another_call_had_counts_as_had():
    course = ReplyCourse(generation_pb2.ReplyResume(ids=[5], sequence=2))
    feed(course, tokens(3, 6))

    assert course.resume() == generation_pb2.ReplyResume(ids=[5, 6], sequence=3)


@pytest.mark.parametrize("error", [BadRequest("x"), ContextTooLong("x"), Overloaded("x")])
def test_what_is_no_fault_of_a_ring_ends_it(error):
    assert not ReplyCourse().may_go_on(error, can_resume=True)


def test_attempts_that_bring_no_token_come_to_an_end_and_a_token_starts_the_count_anew():
    course = ReplyCourse()
    feed(course, started())
    for _ in range(FRUITLESS_MAX - 1):
        course.note_break()
    assert course.may_go_on(StageFailed("x"), can_resume=True)
    feed(course, tokens(2, 7))

    course.note_break()
    assert course.may_go_on(StageFailed("x"), can_resume=True)
    for _ in range(FRUITLESS_MAX):
        course.note_break()

    assert not course.may_go_on(StageFailed("x"), can_resume=True)


def parts_of(done: Event.Done) -> float:
    """The sum that must be the total."""
    timing = done.timing
    token_ms = sum(timing.stage_ms) + timing.link_ms + timing.sample_ms + timing.wait_ms
    return timing.queue_ms + timing.prefill_ms + (done.completion_tokens - 1) * token_ms


@pytest.mark.parametrize("before_ms", [0.0, 30.0, 5000.0])
def test_the_parts_of_a_reply_in_two_attempts_add_up_and_the_pause_is_waiting(before_ms):
    """Ten tokens in all; the last attempt made its first by prefill and decoded three."""
    timing = generation_pb2.Timing(
        queue_ms=1, prefill_ms=20, decode_ms=30, stage_ms=[4, 4], link_ms=2, total_ms=51, route="direct"
    )
    done = Event.Done(completion_tokens=10, timing=timing)

    join_attempts(done, before_ms)

    assert parts_of(done) == pytest.approx(done.timing.total_ms)
    assert done.timing.total_ms >= 51 + before_ms
    assert done.timing.queue_ms == pytest.approx(1 + max(0, before_ms - 60))


def test_a_stage_that_measured_no_total_is_left_as_it_is():
    done = Event.Done(completion_tokens=10, timing=generation_pb2.Timing(queue_ms=1))

    join_attempts(done, 100)

    assert done.timing == generation_pb2.Timing(queue_ms=1)
