"""A ring whose stages are all held does not come up: who is cut off, what is waited for, when a stage moves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from swarm_leader.domain.healing.rewiring import (
    AGAIN_S,
    MOVE_AFTER_S,
    TRIES_MIN,
    WAITS_S,
    Down,
    Step,
    Tries,
    decide,
    read_down,
)
from swarm_leader.domain.records import Route

RELAY, DIRECT = Route.RELAY, Route.DIRECT
HOLDERS = ("id-a", "id-b", "id-c", "id-d")
WAIT_S = 8.0
routes = st.lists(st.sampled_from([RELAY, DIRECT]), min_size=2, max_size=6)


def after(*downs, every_s=1.0, complaints=(), holders=HOLDERS):
    """Tries that came to these, begun at 100 s, each as long as every_s."""
    tries = Tries()
    for number, down in enumerate(downs):
        tries = tries.begin(complaints, holders, 99.5, 100.0 + number * every_s).fail(down, holders)
    return tries


@pytest.mark.parametrize(
    ("ring", "failed", "groups"),
    [
        ([RELAY] * 3, [1], ((1,),)),
        ([RELAY] * 4, [0, 2], ((0,), (2,))),
        ([DIRECT] * 4, [0, 1], ((1,),)),  # its neighbour does not reach it, nor does it reach its own
        ([DIRECT] * 4, [0], ((1, 0),)),  # either end: first the one that is not reached
        ([DIRECT, RELAY, DIRECT], [2], ((2, 0),)),  # it attaches to the relay before it dials
        ([DIRECT, DIRECT], [0, 1], ((1, 0), (0, 1))),
    ],
)
def test_who_is_cut_off_is_read_from_the_links_that_did_not_come_up(ring, failed, groups):
    assert read_down(ring, failed) == Down(groups)


def test_a_fellow_that_does_not_do_what_it_is_told_is_to_blame_itself():
    assert read_down([DIRECT] * 3, [0], own=[0]) == Down(((0,),))


def test_a_relay_that_nobody_reaches_who_goes_by_it_is_away_and_nobody_is_suspected():
    assert read_down([RELAY] * 3, [0, 1, 2]) == Down(is_relay_away=True)
    assert read_down([DIRECT, RELAY, DIRECT], [1, 2]) == Down(is_relay_away=True)
    assert after(Down(((1,),)), Down(is_relay_away=True), Down(((1,),)), every_s=5.0).cut_off(111.0, WAIT_S) == ()


@given(routes, st.sets(st.integers(0, 5)))
def test_every_link_that_failed_is_laid_at_one_of_its_own_ends(ring, failed):
    failed &= set(range(len(ring)))

    down = read_down(ring, failed)

    ends = {end for index in failed for end in (index, (index + 1) % len(ring))}
    assert {index for group in down.groups for index in group} <= ends
    assert bool(down.groups) != down.is_relay_away or not failed


def test_a_stage_moves_when_it_was_named_each_time_for_a_while_and_not_before():
    named = Down(((1,),))

    assert after(named, named, named).cut_off(100.0 + MOVE_AFTER_S - 0.1, WAIT_S) == ()
    assert after(named, named, named).cut_off(100.0 + MOVE_AFTER_S, WAIT_S) == (1,)
    assert after(named, Down(((2,),)), named).cut_off(104.0, WAIT_S) == ()
    # Where there is less patience in all, half of it.
    assert after(named, named).cut_off(100.6, 1.0) == (1,)


def test_one_long_try_is_enough_and_what_its_neighbours_heard_before_it_counts():
    named, either = Down(((1,),)), Down(((1, 0),))

    assert after(named, every_s=4.0).cut_off(100.0 + MOVE_AFTER_S - 0.1, WAIT_S) == ()
    assert after(named, every_s=4.0).cut_off(104.0, WAIT_S) == (1,)
    assert after(named, complaints=[1, 7]).cut_off(99.5 + MOVE_AFTER_S, WAIT_S) == (1,)
    assert after(either, complaints=[0]).cut_off(104.0, WAIT_S) == (0,)


def test_where_the_new_fellow_of_one_end_does_not_help_it_is_the_other_end():
    either = Down(((1, 0),))
    tries = after(either, either, every_s=2.0)
    assert tries.cut_off(104.0, WAIT_S) == (1,)

    moved = tries.moved().begin([], ("id-a", "id-new", "id-c", "id-d"), 0.0, 106.0)
    again = moved.fail(either, ("id-a", "id-new", "id-c", "id-d"))

    assert again.cut_off(106.5, WAIT_S) == (0,)


def test_what_is_known_to_be_down_is_waited_for_while_there_is_patience():
    for down in (Down(is_relay_away=True), Down(((1,),))):
        assert decide(after(*[down] * 9), [], 107.9, WAIT_S) == Step(again_in_s=AGAIN_S)
        assert decide(after(*[down] * 9), [], 108.0, WAIT_S) == Step()
        assert decide(after(*[down] * (TRIES_MIN - 1)), [], 130.0, WAIT_S) == Step(again_in_s=AGAIN_S)


def test_a_ring_that_does_not_come_up_and_names_nobody_is_tried_a_few_times():
    lap = Down()

    steps = [decide(after(*[lap] * count), [], 100.5, WAIT_S) for count in range(1, len(WAITS_S) + 2)]

    assert steps == [*(Step(again_in_s=wait_s) for wait_s in WAITS_S), Step()]
    assert decide(after(*[lap] * TRIES_MIN), [], 140.0, WAIT_S) == Step()


@given(
    st.lists(st.tuples(routes.filter(lambda ring: len(ring) == 4), st.sets(st.integers(0, 3))), min_size=1),
    st.floats(0.05, 10.0),
    st.floats(0.2, 20.0),
)
def test_the_tries_end_and_only_a_stage_that_is_named_in_the_newest_moves(history, every_s, wait_s):
    downs = [read_down(ring, failed) for ring, failed in history]
    now_s = 100.0 + len(downs) * every_s
    tries = after(*downs, every_s=every_s)

    cut_off = tries.cut_off(now_s, wait_s)
    step = decide(tries, [], now_s, wait_s)

    assert set(cut_off) <= {index for group in downs[-1].groups for index in group}
    assert step.moves == () and decide(tries, cut_off, now_s, wait_s).moves == cut_off
    if now_s - 100.0 >= wait_s and len(downs) >= max(TRIES_MIN, len(WAITS_S) + 1):
        assert step.again_in_s is None
