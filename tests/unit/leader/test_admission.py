"""Admission: who runs, who waits, who is turned away."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from swarm_core.errors import Overloaded
from swarm_leader.domain.admission import AdmissionQueue


def test_requests_run_up_to_the_limit_and_then_wait_in_order():
    queue = AdmissionQueue(waiting_max=8)
    queue.set_running_max(2)

    assert [queue.ask(name) for name in "abcd"] == [["a"], ["b"], [], []]
    assert queue.release("b") == ["c"]
    assert queue.release("a") == ["d"]


def test_one_more_than_may_wait_is_turned_away_with_the_numbers():
    queue = AdmissionQueue(waiting_max=1)
    queue.set_running_max(1)
    queue.ask("a")
    queue.ask("b")

    with pytest.raises(Overloaded, match="1 replies run and 1 wait") as refused:
        queue.ask("c")

    assert refused.value.facts == {"running": "1", "waiting": "1", "waiting_max": "1"}


def test_a_request_that_leaves_while_it_waits_makes_room():
    queue = AdmissionQueue(waiting_max=1)
    queue.set_running_max(1)
    queue.ask("a")
    queue.ask("b")

    assert queue.release("b") == []
    assert queue.waiting == 0
    assert queue.release("a") == []
    assert queue.running == 0


def test_a_wider_ring_admits_those_that_wait():
    queue = AdmissionQueue(waiting_max=8)
    queue.set_running_max(1)
    for name in "abc":
        queue.ask(name)

    assert queue.set_running_max(3) == ["b", "c"]


@given(st.integers(1, 4), st.integers(0, 4), st.lists(st.integers(0, 11), max_size=60))
def test_neither_bound_is_ever_passed(running_max, waiting_max, steps):
    """A step asks for a request that is not there and releases one that is."""
    queue = AdmissionQueue(waiting_max)
    queue.set_running_max(running_max)
    there = set()
    for request in steps:
        name = str(request)
        if name in there:
            there.discard(name)
            queue.release(name)
        else:
            try:
                queue.ask(name)
                there.add(name)
            except Overloaded:
                assert queue.running == running_max
        assert queue.running <= running_max
        assert queue.waiting <= waiting_max
        assert queue.running + queue.waiting == len(there)
        assert queue.running == running_max or queue.waiting == 0
