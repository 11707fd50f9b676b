"""Rings that break and are wired anew: replies go on as if nothing had happened, from what stages kept."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from silentswarm.core.v1.generation_pb2 import Sampling
from silentswarm.ring.v1 import ring_pb2
from swarm_stage.engine.session_store import KEPT_S

from tests.unit.stage_engine.arithmetic_compute import VOCABULARY, ArithmeticCompute
from tests.unit.stage_engine.memory_ring import Heard, MemoryRing, lone_run
from tests.unit.stage_engine.shapes import Cycle

PLENTY = 1 << 20
ROW = [range(100, 200), None, [7, 600], range(0, VOCABULARY, 2)]


@dataclass
class Told:
    """A reply over all its attempts, as its caller has it."""

    name: str
    prompt: list[int]
    new_tokens: int
    tokens: list[int] = field(default_factory=list)
    is_over: bool = False
    heard: Heard | None = None

    def ask(self, ring: MemoryRing, lost: int = 0) -> None:
        """lost: the last tokens of the attempt before never reached the caller."""
        if self.is_over:
            return
        if self.heard is not None:
            self.tokens += self.heard.tokens[: len(self.heard.tokens) - lost]
            self.is_over = self.heard.finished is not None
        if not self.is_over:
            self.heard = ring.submit(self.name, self.prompt, self.new_tokens, resume=self.tokens)


def compute_of(stage: int, stages: int) -> ArithmeticCompute:
    return ArithmeticCompute(stage == 0, stage == stages - 1)


def heal(ring: MemoryRing, fresh: set[int]) -> None:
    """The ring breaks; stages are replaced; the next epoch keeps what is left."""
    ring.break_off()
    for stage in fresh:
        ring.renew(stage, compute_of(stage, len(ring.links)))
    ring.begin_epoch(ring.epoch + 1, keeps=True, fresh=fresh)


def assert_nothing_left(ring: MemoryRing) -> None:
    """Of sessions; kept ones expire."""
    ring.clock.advance(KEPT_S + 1)
    for role in (ring.first, *ring.later):
        role.expire()
        role.refresh_counters()
        assert not role._store._open and not role._store._kept and not role._store._tapes._tapes
    assert [compute.held_tokens() for compute in ring.computes] == [0] * len(ring.computes)
    assert [counters.tape_bytes for counters in ring.counters] == [0] * len(ring.computes)
    assert (ring.first.pieces_out, ring.first.batches_out, ring.budget.reserved_tokens) == (0, 0, 0)
    assert not any(len(role._backlog) or role._rebuilding or role._backlog._stops for role in ring.later)


@settings(max_examples=150, deadline=None)
@given(
    stages=st.integers(1, 4),
    chunk=st.integers(0, 5),
    tape_bytes=st.sampled_from([0, 60, 200, PLENTY]),
    kv_tokens=st.sampled_from([45, 200, 5000]),
    asks=st.lists(
        st.tuples(st.lists(st.integers(0, 900), min_size=1, max_size=12), st.integers(1, 9)), min_size=1, max_size=5
    ),
    breaks=st.lists(
        st.tuples(
            st.lists(st.integers(0, 3), max_size=60),
            st.sets(st.integers(0, 3), max_size=3),
            st.integers(0, 2),
            st.booleans(),
        ),
        min_size=1,
        max_size=3,
    ),
)
def test_replies_go_on_as_if_nothing_had_happened(stages, chunk, tape_bytes, kv_tokens, asks, breaks):
    """Whatever the moment, whichever stages are lost, tapes or none, events lost, what was kept expired."""
    ring = MemoryRing(stages, chunk, kv_tokens, tape_bytes_max=tape_bytes)
    replies = [Told(str(index), prompt, new_tokens) for index, (prompt, new_tokens) in enumerate(asks)]
    for reply in replies:
        reply.ask(ring)
    for steps, fresh, lost, expires in breaks:
        for stage in steps:
            ring.step(stage % stages)
        heal(ring, {stage for stage in fresh if stage < stages})
        if expires:
            ring.clock.advance(KEPT_S + 1)
            for role in (ring.first, *ring.later):
                role.expire()
        for reply in replies:
            reply.ask(ring, min(lost, len(reply.heard.tokens)) if reply.heard.finished is None else 0)
    ring.run()

    for reply in replies:
        if not reply.is_over:
            reply.tokens += reply.heard.tokens
            assert reply.heard.finished is not None, reply.heard.notes
            assert reply.heard.finished.completion_tokens == len(reply.tokens)
        assert reply.tokens == lone_run(reply.prompt, stages, reply.new_tokens)
    assert_nothing_left(ring)


def broken_ring(stages: int, tape_bytes: int = PLENTY, new_tokens: int = 8, laps: int = 4, **fields):
    """A ring whose one reply has some tokens when it breaks, and that reply."""
    ring = MemoryRing(stages, 2, tape_bytes_max=tape_bytes, **fields)
    reply = Told("r", [5, 7, 11, 13, 17], new_tokens)
    reply.ask(ring)
    while len(reply.heard.tokens) < laps:
        for stage in range(stages):
            ring.step(stage)
    return ring, reply


def finish(ring: MemoryRing, reply: Told) -> list[int]:
    reply.ask(ring)
    ring.run()
    return reply.tokens + reply.heard.tokens


@pytest.mark.parametrize("stages", [1, 2, 3])
def test_a_ring_that_lost_nothing_computes_no_position_twice(stages):
    ring, reply = broken_ring(stages)
    heal(ring, set())
    before = ring.counters[0].prompt_tokens
    tokens = finish(ring, reply)

    assert tokens == lone_run(reply.prompt, stages, 8)
    assert ring.counters[0].prompt_tokens - before == 1
    assert (ring.counters[0].resumed_kept, ring.counters[0].resumed_anew) == (1, 0)
    assert [counters.positions_rebuilt for counters in ring.counters] == [0] * stages


@pytest.mark.parametrize("fresh", [{0}, {1}, {2}, {3}, {0, 1}, {1, 2}, {2, 3}, {0, 3}, {0, 2}, {1, 3}, {0, 1, 2}])
def test_a_stage_that_was_lost_is_rebuilt_and_no_other_computes_again(fresh):
    ring, reply = broken_ring(4)
    heal(ring, fresh)
    held = len(reply.prompt) + len(reply.heard.tokens) - 1
    tokens = finish(ring, reply)

    assert tokens == lone_run(reply.prompt, 4, 8)
    assert [counters.positions_rebuilt for counters in ring.counters] == [
        held if stage in fresh else 0 for stage in range(4)
    ]
    assert (ring.counters[0].resumed_kept, ring.counters[0].resumed_anew) == (1, 0)
    assert_nothing_left(ring)


def test_a_session_that_goes_on_says_nothing_of_what_prompts_cost():
    """Its one position was taken for a prompt of one token, at a whole step's price: others' pasts came back in tiny
    pieces, a second apart."""
    ring, reply = broken_ring(3)
    heal(ring, {0})  # a stage 0 that has seen no prompt yet
    finish(ring, reply)

    assert (ring.counters[0].resumed_kept, ring.counters[0].resumed_anew) == (1, 0)
    assert ring.first._costs.steps is not None and ring.first._costs.pieces is None


@pytest.mark.parametrize(("fresh", "tape_bytes"), [({1}, 0), ({2}, 0), ({2}, 30), ({0, 1, 2}, PLENTY)])
def test_without_what_it_takes_a_reply_is_computed_anew(fresh, tape_bytes):
    ring, reply = broken_ring(3, tape_bytes)
    heal(ring, fresh)
    tokens = finish(ring, reply)

    assert tokens == lone_run(reply.prompt, 3, 8)
    assert (ring.counters[0].resumed_kept, ring.counters[0].resumed_anew) == (0, 1)
    assert_nothing_left(ring)


def test_an_epoch_that_keeps_nothing_drops_what_was_kept():
    ring, reply = broken_ring(3)
    ring.break_off()
    kept = [counters.sessions_kept for counters in ring.counters]
    ring.begin_epoch(2)
    for role in (ring.first, *ring.later):
        role.refresh_counters()

    assert kept == [1, 1, 1]
    assert [counters.sessions_kept for counters in ring.counters] == [0, 0, 0]
    assert finish(ring, reply) == lone_run(reply.prompt, 3, 8)
    assert ring.counters[0].resumed_anew == 1


def test_what_is_kept_never_stands_in_the_way_of_a_new_session():
    ring, reply = broken_ring(2, kv_tokens=20)
    heal(ring, set())
    other = ring.submit("other", [1, 2, 3, 4], 14)
    ring.run()
    assert len(other.tokens) == 14

    assert finish(ring, reply) == lone_run(reply.prompt, 2, 8)
    assert ring.counters[0].resumed_anew == 1


def test_others_decode_while_a_stage_is_rebuilt():
    """A fresh stage does one piece, then whatever came meanwhile."""
    ring = MemoryRing(3, 2, tape_bytes_max=PLENTY)
    long, other = Told("long", list(range(1, 60)), 6), Told("other", [3, 4], 30)
    long.ask(ring), other.ask(ring)
    while not long.heard.tokens:
        for stage in range(3):
            ring.step(stage)
    heal(ring, {1})
    other.ask(ring)
    for _ in range(12):
        for stage in range(3):
            ring.step(stage)
    long.ask(ring)
    before = len(other.heard.tokens)
    while not long.heard.tokens:
        for stage in range(3):
            ring.step(stage)
    assert len(other.heard.tokens) - before > 5
    ring.run()

    assert long.tokens + long.heard.tokens == lone_run(long.prompt, 3, 6)
    assert other.tokens + other.heard.tokens == lone_run(other.prompt, 3, 30)


def test_shapes_and_likelihoods_are_the_same_when_kept_sessions_turn_out_to_be_lost():
    """The shape is asked once a token, though the ring is asked twice."""
    ring = MemoryRing(3)
    sampling = Sampling(temperature=0, top_logprobs=2)
    whole = ring.submit("r", [5, 7], 9, constraint=Cycle(ROW, VOCABULARY), sampling=sampling)
    while len(whole.tokens) < 4:
        for stage in range(3):
            ring.step(stage)
    heal(ring, {2})
    shape = Cycle(ROW, VOCABULARY)
    for token in whole.tokens:
        shape.allowed()
        shape.accept(token)
    resumed = ring.submit("r", [5, 7], 9, constraint=shape, sampling=sampling, resume=whole.tokens)
    ring.run()
    lone = MemoryRing(3)
    expected = lone.submit("r", [5, 7], 9, constraint=Cycle(ROW, VOCABULARY), sampling=sampling)
    lone.run()

    assert whole.tokens + resumed.tokens == expected.tokens
    assert whole.likelihoods + resumed.likelihoods == expected.likelihoods
    assert shape.asked == 9 and ring.counters[0].resumed_anew == 1


def test_no_reply_ever_gets_anothers_past():
    """The same request id with another prompt or adapter is another reply; so is the same prompt of another request."""
    ring, reply = broken_ring(2)
    heal(ring, set())
    tokens = reply.heard.tokens
    stranger = ring.submit("s", reply.prompt, 8, resume=tokens)
    swapped = ring.submit("r", [9, 9, 9, 9, 9], 8, resume=tokens)
    ring.run()
    lone = MemoryRing(2)
    expected = lone.submit("r", [9, 9, 9, 9, 9], 8, resume=tokens)
    lone.run()

    assert stranger.tokens == lone_run(reply.prompt, 2, 8)[len(tokens) :]
    assert swapped.tokens == expected.tokens
    assert (ring.counters[0].resumed_kept, ring.counters[0].resumed_anew) == (0, 2)


def hidden_frame(session: int, pos: int, positions: int = 1, **fields) -> ring_pb2.FrameBatch:
    frame = ring_pb2.Frame(session=session, pos=pos)
    frame.hidden.hidden.dtype = "F32"
    frame.hidden.hidden.shape.extend([positions, 2])
    frame.hidden.hidden.data = b"\0" * 8 * positions
    for name, value in fields.items():
        setattr(frame.hidden, name, value)
    return frame


@pytest.mark.parametrize("fresh", [set(), {1}])
@pytest.mark.parametrize(
    "frames",
    [
        [hidden_frame(9, 3, resumes=True, reply_key=b"k" * 16)],
        [hidden_frame(9, 3, resumes=True, reply_key=b"k" * 15)],
        [hidden_frame(9, 3, resumes=True)],
        [hidden_frame(9, 0, resumes=True, reply_key=b"k" * 16)],
        [hidden_frame(9, 3, rebuilds=True, reply_key=b"k" * 16)],
        [hidden_frame(9, 0, resumes=True, rebuilds=True, reply_key=b"k" * 16)],
        [hidden_frame(9, 0, positions=5000, rebuilds=True, reply_key=b"k" * 16)],
        [hidden_frame(9, 0, rebuilds=True, reply_key=b"k" * 17)],
        [hidden_frame(9, 0, rebuilds=True, reply_key=b"k" * 16), hidden_frame(9, 0, rebuilds=True)],
        [hidden_frame(9, 0, rebuilds=True, reply_key=b"k" * 16), hidden_frame(9, 1)],
        [hidden_frame(9, 0, rebuilds=True, reply_key=b"k" * 16), hidden_frame(9, 2, resumes=True)],
        [hidden_frame(9, 0, rebuilds=True, reply_key=b"k" * 16), *[hidden_frame(9, 1, resumes=True)] * 9],
    ],
)
def test_frames_that_go_on_with_nothing_fail_their_session_alone(frames, fresh):
    ring, reply = broken_ring(2)
    heal(ring, fresh)
    reply.ask(ring)
    for _ in range(6):
        for stage in range(2):
            ring.step(stage)
    for frame in frames:
        ring.deliver(1, ring_pb2.FrameBatch(epoch=2, frames=[frame]))
    ring.run()

    assert reply.tokens + reply.heard.tokens == lone_run(reply.prompt, 2, 8)
    assert ring.counters[1].frames_refused >= 1
    assert_nothing_left(ring)


def test_a_session_that_goes_on_twice_fails():
    ring, reply = broken_ring(2)
    heal(ring, set())
    reply.ask(ring)
    ring.step(0)
    again = ring_pb2.FrameBatch.FromString(ring.links[1][0][0].SerializeToString())
    ring.deliver(1, again)
    ring.step(1), ring.step(1)
    ring.step(0), ring.step(0)

    assert "twice" in reply.heard.broke.error.message
    ring.run()
    assert_nothing_left(ring)


def test_what_was_kept_of_a_reply_is_taken_up_by_its_own_caller_alone():
    """Somebody else asks the same under the same name, and says that other tokens were drawn."""
    ring, mine = MemoryRing(1), list(range(40, 60))
    ring.submit("r", mine, 8, caller="one")
    for _ in range(6):
        ring.step(0)
    heal(ring, set())
    heard = ring.submit("r", mine, 8, caller="two", resume=[5, 6, 7])
    ring.run()

    assert ring.counters[0].resumed_kept == 0 and ring.counters[0].resumed_anew == 1
    assert len(heard.tokens) == 5
