"""First and later stages together: replies, sessions, failures, cancels, epochs."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from silentswarm.core.v1 import generation_pb2, tensor_pb2
from silentswarm.ring.v1 import ring_pb2
from swarm_core.errors import LinkBroken, Reason
from swarm_stage.engine.reply import Tokens, Waiting

from tests.unit.stage_engine.memory_ring import MemoryRing, lone_run

PROMPT = [5, 7, 11]


@pytest.mark.parametrize("stages", [1, 2, 3, 4])
def test_a_reply_runs_to_its_length_and_leaves_nothing_behind(stages):
    ring = MemoryRing(stages)
    heard = ring.submit("a", PROMPT, new_tokens=6)
    ring.run()

    assert len(heard.tokens) == 6
    assert heard.finished.reason == generation_pb2.FINISH_REASON_LENGTH
    assert [compute.held_tokens() for compute in ring.computes] == [0] * stages
    assert ring.counters[0].kv_tokens_reserved == 0


@pytest.mark.parametrize("short", [0, 1, 2])
def test_a_session_that_finds_no_memory_fails_alone(short):
    """Every stage makes room for the whole reservation before it computes anything of a session."""
    ring = MemoryRing(3)
    ring.computes[short].room_tokens = 20
    big = ring.submit("big", PROMPT, new_tokens=18)
    small = ring.submit("small", PROMPT, new_tokens=17)
    ring.run()

    assert big.broke.error.why is Reason.STAGE_FAILED and "no memory for 21 positions" in big.broke.error.message
    assert small.tokens == lone_run(PROMPT, 3, 17)
    assert [compute.held_tokens() for compute in ring.computes] == [0, 0, 0]
    assert ring.counters[0].kv_tokens_reserved == 0


@pytest.mark.parametrize("stages", [1, 2])
def test_sessions_that_found_no_memory_take_no_piece_from_those_that_follow(stages):
    """As many as there may be pieces in the ring: an answer that never comes is not awaited."""
    ring = MemoryRing(stages)
    ring.computes[0].room_tokens = 20
    for number in range(stages):
        ring.submit(str(number), PROMPT, new_tokens=18)
    ring.run()
    after = ring.submit("after", PROMPT, new_tokens=17)
    ring.run()

    assert after.tokens == lone_run(PROMPT, stages, 17)
    assert ring.first.pieces_out == 0


def test_an_end_token_ends_the_reply_and_is_counted():
    second = lone_run(PROMPT, 2, 2)[1]
    ring = MemoryRing(2)
    heard = ring.submit("a", PROMPT, new_tokens=50, end_ids=frozenset({second}))
    ring.run()

    assert heard.tokens[-1] == second and len(heard.tokens) == 2
    assert heard.finished.reason == generation_pb2.FINISH_REASON_STOP
    assert heard.finished.completion_tokens == 2


@settings(max_examples=60, deadline=None)
@given(
    stages=st.integers(1, 4),
    chunk=st.integers(0, 5),
    in_flight=st.integers(1, 4),
    requests=st.lists(
        st.tuples(st.lists(st.integers(0, 996), min_size=1, max_size=12), st.integers(1, 6), st.booleans()),
        min_size=1,
        max_size=6,
    ),
    schedule=st.lists(st.integers(0, 3), max_size=60),
)
def test_every_reply_equals_its_lone_run_whatever_runs_beside_it(stages, chunk, in_flight, requests, schedule):
    """Random arrivals, piece sizes, interleavings and cancels."""
    ring = MemoryRing(stages, chunk=chunk, in_flight=in_flight)
    turns = iter(schedule)
    heard = []
    for index, (prompt, new_tokens, _) in enumerate(requests):
        heard.append(ring.submit(str(index), prompt, new_tokens))
        for stage in [next(turns, None) for _ in range(4)]:
            if stage is not None and stage < stages:
                ring.step(stage)
    for index, (_, _, is_cancelled) in enumerate(requests):
        if is_cancelled:
            ring.cancel(str(index))
    ring.run()

    for (prompt, new_tokens, is_cancelled), told in zip(requests, heard, strict=True):
        expected = lone_run(prompt, stages, new_tokens)
        assert told.tokens == expected[: len(told.tokens)]
        assert is_cancelled or told.tokens == expected
    assert all(compute.held_tokens() == 0 for compute in ring.computes)
    assert ring.counters[0].kv_tokens_reserved == 0


def test_sessions_that_step_together_travel_in_one_message():
    ring = MemoryRing(2)
    for name in "abcd":
        ring.submit(name, PROMPT, new_tokens=9)
    ring.run()
    decoding = [batch for batch in ring.sent if len(batch.frames) > 1 and batch.frames[0].HasField("hidden")]

    assert {len(batch.frames) for batch in decoding} == {2}  # a group a stage
    assert len(decoding) >= 12


@pytest.mark.parametrize("failing_stage", [0, 1, 2])
def test_a_session_that_fails_on_any_stage_ends_alone(failing_stage):
    ring = MemoryRing(3, poison={failing_stage: 666})
    good = ring.submit("good", PROMPT, new_tokens=5)
    bad = ring.submit("bad", [1, 666, 2], new_tokens=5)
    ring.run()

    assert bad.broke.error.why is Reason.STAGE_FAILED
    assert good.tokens == lone_run(PROMPT, 3, 5)
    assert all(compute.held_tokens() == 0 for compute in ring.computes)


def test_a_cancelled_session_is_gone_on_every_stage_after_one_lap():
    ring = MemoryRing(3)
    ring.submit("a", PROMPT, new_tokens=1000)
    for _ in range(9):
        for stage in range(3):
            ring.step(stage)
    positions = [counters.positions for counters in ring.counters]
    ring.cancel("a")
    ring.run()

    assert all(compute.held_tokens() == 0 for compute in ring.computes)
    assert all(after.positions - before <= 2 for after, before in zip(ring.counters, positions, strict=True))


def test_a_conversation_that_can_never_fit_is_refused_with_both_numbers_before_any_compute():
    ring = MemoryRing(2, kv_tokens=64)
    heard = ring.submit("a", PROMPT, new_tokens=100)
    ring.run()

    assert heard.broke.error.why is Reason.CONTEXT_TOO_LONG
    assert heard.broke.error.facts["needed_tokens"] == "103" and heard.broke.error.facts["budget_tokens"] == "64"
    assert ring.counters[0].positions == 0


def test_a_request_waits_until_its_whole_reservation_fits_and_then_runs():
    ring = MemoryRing(2, kv_tokens=30)
    first = ring.submit("a", PROMPT, new_tokens=20)
    second = ring.submit("b", PROMPT, new_tokens=20)
    ring.step(0)
    waiting = list(second.notes)
    ring.run()

    assert [type(note) for note in waiting] == [Waiting]
    assert len(first.tokens) == len(second.tokens) == 20


def test_a_prompt_piece_that_came_back_is_a_sign_of_life():
    ring = MemoryRing(2, chunk=2)
    heard = ring.submit("a", list(range(1, 9)), new_tokens=1)
    ring.run()

    assert sum(getattr(note, "ids", None) == () for note in heard.notes) == 3
    assert heard.tokens == lone_run(list(range(1, 9)), 2, 1)


def test_at_most_one_prompt_piece_a_stage_is_in_the_ring():
    ring = MemoryRing(2, chunk=1)
    ring.submit("a", list(range(1, 9)), new_tokens=1)
    while ring.first.has_work:
        ring.first.turn()

    assert len(ring.links[1]) == 2


def test_frames_of_another_epoch_have_no_effect_and_are_counted():
    ring = MemoryRing(2)
    heard = ring.submit("a", PROMPT, new_tokens=3)
    ring.first.turn()
    ring.links[1][0][0].epoch = 7
    ring.run()

    assert heard.tokens == []
    assert ring.counters[1].frames_refused == 1


def test_a_new_epoch_fails_what_ran_and_serves_what_comes():
    ring = MemoryRing(2)
    old = ring.submit("old", PROMPT, new_tokens=100)
    for _ in range(6):
        ring.step(0), ring.step(1)
    ring.begin_epoch(2)
    new = ring.submit("new", PROMPT, new_tokens=4)
    ring.run()

    assert old.broke.error.why is Reason.LINK_BROKEN
    assert new.tokens == lone_run(PROMPT, 2, 4)


def test_a_broken_ring_counts_no_session_and_no_tokens_on_any_stage():
    """A later stage once went on reporting the KV it had just freed."""
    ring = MemoryRing(3)
    ring.submit("a", PROMPT, new_tokens=100)
    for _ in range(6):
        for stage in range(3):
            ring.step(stage)
    for role in (ring.first, *ring.later):
        role.fail_all(LinkBroken("cut"))

    assert [(counters.sessions, counters.kv_tokens_used) for counters in ring.counters] == [(0, 0)] * 3


def test_a_broken_ring_refuses_until_the_next_epoch():
    ring = MemoryRing(2)
    ring.first.fail_all(LinkBroken("stage 1 closed the link"))
    refused = ring.submit("a", PROMPT)
    ring.begin_epoch(2)
    served = ring.submit("b", PROMPT)
    ring.run()

    assert refused.broke.error.why is Reason.LINK_BROKEN
    assert len(served.tokens) == 5


@pytest.mark.parametrize(
    "lie",
    [
        {"shape": [2, 2]},  # says more than it brings
        {"shape": [2**31, 2**31]},
        {"shape": [1, 3]},
        {"shape": []},
        {"shape": [0, 2]},
        {"dtype": "F64"},
        {"dtype": ""},
        {"data": b"short"},
    ],
)
def test_a_lying_tensor_header_ends_its_session_only(lie):
    ring = MemoryRing(2)
    good = ring.submit("good", PROMPT, new_tokens=3)
    bad = ring.submit("bad", [1], new_tokens=3)
    ring.first.turn()
    ring.first.turn()
    for batch, _ in ring.links[1]:
        for frame in batch.frames:
            if frame.session == 2:
                honest = {"dtype": "F32", "shape": [1, 2], "data": frame.hidden.hidden.data}
                frame.hidden.hidden.CopyFrom(tensor_pb2.Tensor(**{**honest, **lie}))
    ring.run()

    assert bad.broke.error.why is Reason.BAD_FRAME
    assert good.tokens == lone_run(PROMPT, 2, 3)
    assert ring.counters[1].frames_refused == 1


def test_a_frame_of_an_unknown_session_is_refused_before_anything_is_held():
    ring = MemoryRing(2)
    hidden = ring_pb2.Hidden(hidden=tensor_pb2.Tensor(dtype="F32", shape=[1, 2], data=bytes(8)))
    frame = ring_pb2.Frame(session=99, pos=40, hidden=hidden)
    ring.later[0].on_batch(ring_pb2.FrameBatch(epoch=1, frames=[frame]), 0.0)

    assert ring.computes[1].held_tokens() == 0
    assert ring.links[0][0][0].frames[0].failure.stage_index == 1


def test_an_ended_session_number_is_never_taken_again_in_its_epoch():
    ring = MemoryRing(2)
    ring.submit("a", PROMPT, new_tokens=1)
    ring.first.turn()
    replayed = ring_pb2.FrameBatch.FromString(ring.links[1][0][0].SerializeToString())
    ring.run()
    ring.deliver(1, replayed)
    ring.run()

    assert ring.counters[1].frames_refused == 1
    assert ring.computes[1].held_tokens() == 0


def test_a_replayed_answer_has_no_effect_and_is_counted():
    """Three copies of one answer once gave three tokens."""
    ring = MemoryRing(2)
    heard = ring.submit("a", PROMPT, new_tokens=4)
    ring.step(0)
    ring.step(1)
    answer = ring.links[0][0][0].SerializeToString()
    for _ in range(2):
        ring.deliver(0, ring_pb2.FrameBatch.FromString(answer))
    ring.run()

    assert heard.tokens == lone_run(PROMPT, 2, 4)
    assert ring.counters[0].frames_refused == 2


def test_a_refusal_on_a_later_stage_keeps_its_numbers_and_names_the_stage():
    ring = MemoryRing(3, context_tokens=64)
    heard = ring.submit("a", PROMPT, new_tokens=4)
    ring.step(0)
    ring.links[1][0][0].frames[0].pos = 62
    ring.run()

    assert heard.broke.error.why is Reason.BAD_FRAME
    assert "stage 1" in heard.broke.error.message


def test_a_tighter_stage_lowers_what_stage_0_admits():
    ring = MemoryRing(2, kv_tokens=1000)
    ring.first.limit_kv(50)
    heard = ring.submit("a", PROMPT, new_tokens=60)

    assert heard.broke.error.facts["budget_tokens"] == "50"


@pytest.mark.parametrize(("tokens", "admitted"), [(None, 1000), (700, 700), (2000, 1000)])
def test_the_next_epoch_sets_the_budget_anew_and_never_above_what_was_loaded(tokens, admitted):
    ring = MemoryRing(2, kv_tokens=1000)
    ring.first.limit_kv(50)
    ring.first.limit_kv(tokens)
    ring.first.refresh_counters()

    assert ring.counters[0].kv_tokens_max == admitted


def test_every_stage_tells_what_the_ring_admits_by():
    """So that what it holds is against what may be held, not against what would fit it alone."""
    ring = MemoryRing(3, kv_tokens=1000)
    for role in (ring.first, *ring.later):
        role.limit_kv(700)
        role.refresh_counters()

    assert [counters.kv_tokens_max for counters in ring.counters] == [700, 700, 700]


def test_whoever_waits_for_its_prompts_turn_hears_that_the_ring_moves():
    """Replies take silence for a frozen stage; the second prompt of a caller is not begun before the first is done."""
    ring = MemoryRing(1, chunk=1)
    ring.submit("first", [1, 2, 3, 4], new_tokens=1)
    second = ring.submit("second", [1, 2], new_tokens=1)
    for _ in range(3):
        ring.step(0)

    assert second.notes[1:] == [Tokens(())] * 3


def test_bytes_per_token_count_every_link_once():
    ring = MemoryRing(3)
    heard = ring.submit("a", PROMPT, new_tokens=11)
    ring.run()
    decoding = [batch for batch in ring.sent if batch.frames[0].pos >= len(PROMPT)]
    sent = sum(frame.ByteSize() for batch in decoding for frame in batch.frames if not frame.HasField("end"))

    assert heard.finished.timing.bytes_per_token == pytest.approx(sent / 10)


def test_the_last_stage_answering_too_much_fails_that_reply():
    ring = MemoryRing(2)
    heard = ring.submit("a", PROMPT, new_tokens=3)
    ring.step(0)
    ring.step(1)
    ring.links[0][0][0].frames[0].sampled.tokens.append(3)
    ring.run()

    assert heard.broke.error.why is Reason.BAD_FRAME
