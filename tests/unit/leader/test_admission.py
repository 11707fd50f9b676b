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
        queue.ask("c", retry_after_s=7)

    assert refused.value.facts == {
        "running": "1",
        "waiting": "1",
        "waiting_max": "1",
        "caller_waiting": "1",
        "retry_after_s": "7",
    }


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


def test_callers_take_turns_however_many_requests_each_has():
    queue = AdmissionQueue(waiting_max=16)
    queue.set_running_max(1)
    for name in ("ann-0", "ann-1", "ann-2", "ann-3"):
        queue.ask(name, "ann")
    queue.ask("bob-0", "bob")

    assert queue.positions() == {"bob-0": 1, "ann-1": 2, "ann-2": 3, "ann-3": 4}
    assert queue.release("ann-0") == ["bob-0"]


def test_a_caller_of_twice_the_weight_gets_twice_the_places():
    queue = AdmissionQueue(waiting_max=1000)
    queue.set_running_max(1)
    queue.ask("first")
    for number in range(60):
        queue.ask(f"ann-{number}", "ann", weight=2.0)
        queue.ask(f"bob-{number}", "bob", weight=1.0)

    started, running = [], "first"
    for _ in range(30):
        (running,) = queue.release(running)
        started.append(running)

    assert sum(name.startswith("ann") for name in started) == 20


def test_one_caller_alone_gets_three_quarters_of_the_queue_and_others_find_room():
    queue = AdmissionQueue(waiting_max=64)
    queue.set_running_max(1)
    queue.ask("running")
    waits = 0
    with pytest.raises(Overloaded, match=r"^48 replies of this caller wait .* the 16 places left are for others"):
        while True:
            queue.ask(f"ann-{waits}", "ann")
            waits += 1

    assert waits == 48
    assert queue.ask("bob-0", "bob") == []
    assert queue.positions()["bob-0"] == 2  # behind ann's oldest, before her 47 others


def test_the_last_place_in_the_queue_is_for_a_caller_that_has_none():
    queue = AdmissionQueue(waiting_max=2)
    queue.set_running_max(1)
    queue.ask("running")
    queue.ask("ann-0", "ann")
    with pytest.raises(Overloaded, match="for others"):
        queue.ask("ann-1", "ann")

    assert queue.ask("bob-0", "bob") == []


def test_a_caller_that_waits_is_pushed_out_by_nobody():
    queue = AdmissionQueue(waiting_max=4)
    queue.set_running_max(1)
    queue.ask("running")
    for number in range(3):
        queue.ask(f"ann-{number}", "ann")
    queue.ask("bob-0", "bob")
    with pytest.raises(Overloaded, match="as many as may"):
        queue.ask("cat-0", "cat")

    assert set(queue.positions()) == {"ann-0", "ann-1", "ann-2", "bob-0"}


@given(st.integers(1, 4), st.integers(0, 12), st.lists(st.tuples(st.integers(0, 3), st.integers(0, 30)), max_size=120))
def test_whoever_waits_with_nothing_is_refused_only_when_the_queue_is_full(running_max, waiting_max, steps):
    queue = AdmissionQueue(waiting_max)
    queue.set_running_max(running_max)
    waiting = {}
    for caller, number in steps:
        name = f"{caller}-{number}"
        if name in waiting:
            del waiting[name]
            queue.release(name)
            continue
        try:
            queue.ask(name, str(caller))
            waiting[name] = caller
        except Overloaded:
            in_line = {waiting[ask] for ask in queue.positions()}
            assert caller in in_line or queue.waiting == waiting_max
        assert sorted(queue.positions().values()) == list(range(1, queue.waiting + 1))


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
