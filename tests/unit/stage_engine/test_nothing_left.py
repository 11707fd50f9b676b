"""Whatever fails, is given up or is wired anew, in any order: nothing is left of it, and the next one is served."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.stage_engine.memory_ring import Heard, MemoryRing

STAGES_MAX = 3
ASKS = st.tuples(
    st.just("ask"),
    st.lists(st.integers(1, 40), min_size=1, max_size=30),
    st.integers(1, 12),
    st.sampled_from("abc"),
)
ACTS = st.one_of(
    *[ASKS] * 2,
    st.tuples(st.just("cancel"), st.integers(0, 20)),
    st.tuples(st.just("conclude"), st.integers(0, 20)),
    st.tuples(st.just("rewire")),
    st.tuples(st.just("heal"), st.sets(st.integers(0, STAGES_MAX - 1), max_size=2)),
    st.tuples(st.just("go on"), st.integers(0, 20)),
    *[st.tuples(st.just("step"), st.integers(0, STAGES_MAX - 1))] * 4,
)


def play(ring: MemoryRing, acts: list[tuple]) -> None:
    """Acts in order; stages move only as far as they are told to."""
    asked, epoch = 0, 1
    replies: list[tuple[list[int], int, Heard]] = []
    for act in acts:
        match act:
            case ("ask", prompt, new_tokens, caller):
                replies.append((prompt, new_tokens, ring.submit(str(asked), prompt, new_tokens, caller=caller)))
                asked += 1
            case ("go on", number) if number < len(replies) and replies[number][2].broke is not None:
                prompt, new_tokens, heard = replies[number]
                ring.submit(str(number), prompt, new_tokens, resume=heard.tokens[: new_tokens - 1])
            case ("cancel", number):
                ring.cancel(str(number))
            case ("conclude", number):
                ring.first.conclude(str(number))
            case ("rewire",):
                epoch += 1
                ring.begin_epoch(epoch)  # what is under way still arrives, as it may
            case ("heal", fresh):
                epoch += 1
                ring.break_off()
                ring.begin_epoch(epoch, keeps=True, fresh=fresh)
            case ("step", stage):
                ring.step(stage % len(ring.links))


@settings(max_examples=150, deadline=None)
@given(
    stages=st.integers(1, STAGES_MAX),
    chunk=st.sampled_from([0, 1, 3, 16]),
    kv_tokens=st.sampled_from([60, 200, 5000]),
    in_flight=st.integers(1, 4),
    poison=st.none() | st.integers(1, 40),
    room_tokens=st.none() | st.integers(5, 40),
    failing=st.integers(0, STAGES_MAX - 1),
    acts=st.lists(ACTS, min_size=20, max_size=80),
)
def test_nothing_is_left_and_the_next_one_is_served(
    stages, chunk, kv_tokens, in_flight, poison, room_tokens, failing, acts
):
    """A stage that computes no poison and has room for short sessions only, prompts that find out, and all the rest."""
    failing %= stages
    ring = MemoryRing(stages, chunk, kv_tokens, in_flight, poison={failing: poison} if poison else None)
    ring.computes[failing].room_tokens = room_tokens
    play(ring, acts)
    ring.run()
    left = [role._sessions for role in (ring.first, *ring.later)]
    ring.computes[failing].room_tokens = None
    after = ring.submit("after", [50, 51, 52], 3)
    ring.run()

    assert not any(left)
    assert len(after.tokens) == 3
    assert [compute.held_tokens() for compute in ring.computes] == [0] * stages
    assert (ring.first.pieces_out, ring.first.batches_out, ring.budget.reserved_tokens) == (0, 0, 0)
    assert not any(role._ended_early or role._rebuilding or len(role._backlog) for role in ring.later)
