"""swarm_core.fair_queue: callers get their shares, whatever they ask for."""

from hypothesis import given
from hypothesis import strategies as st
from swarm_core.fair_queue import AWAY_MAX, FairQueue


def drain(queue: FairQueue[str], count: int | None = None) -> list[str]:
    """Take heads in order."""
    taken = []
    while len(queue) and (count is None or len(taken) < count):
        taken.append(queue.heads()[0])
        queue.take(taken[-1])
    return taken


def test_one_caller_is_served_in_order_of_arrival():
    queue: FairQueue[str] = FairQueue()
    for item in "abc":
        queue.push(item, "ann")

    assert drain(queue) == ["a", "b", "c"]


def test_a_caller_with_many_requests_does_not_keep_another_waiting():
    queue: FairQueue[str] = FairQueue()
    for number in range(10):
        queue.push(f"ann-{number}", "ann")
    queue.push("bob-0", "bob")

    assert drain(queue, 2) == ["ann-0", "bob-0"]


def test_twice_the_weight_gets_twice_the_turns():
    queue: FairQueue[str] = FairQueue()
    for number in range(60):
        queue.push(f"ann-{number}", "ann", weight=2.0)
        queue.push(f"bob-{number}", "bob", weight=1.0)

    taken = drain(queue, 30)

    assert sum(item.startswith("ann") for item in taken) == 20


def test_a_caller_that_was_away_is_owed_nothing():
    queue: FairQueue[str] = FairQueue()
    for number in range(100):
        queue.push(f"ann-{number}", "ann")
    drain(queue, 50)
    for number in range(50):
        queue.push(f"bob-{number}", "bob")

    assert sum(item.startswith("bob") for item in drain(queue, 20)) == 10


def test_a_dropped_item_is_not_charged():
    queue: FairQueue[str] = FairQueue()
    queue.push("ann-0", "ann", cost=1000.0)
    queue.push("ann-1", "ann")
    queue.push("bob-0", "bob")

    assert queue.drop("ann-0")
    assert not queue.drop("ann-0")
    assert drain(queue) == ["ann-1", "bob-0"]


ENTRIES = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(1, 100), st.sampled_from([0.5, 1.0, 3.0])), max_size=40
)


@given(ENTRIES)
def test_the_foretold_order_is_the_order(entries):
    queue: FairQueue[str] = FairQueue()
    for number, (caller, cost, weight) in enumerate(entries):
        queue.push(f"{caller}-{number}", caller, weight, cost)
    foretold = list(queue)

    assert drain(queue) == foretold
    assert not list(queue)


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(1, 50)), min_size=30, max_size=60))
def test_two_callers_that_wait_never_differ_by_more_than_their_largest_items(costs):
    """The bound of start-time fair queueing, for equal weights."""
    queue: FairQueue[tuple[str, int]] = FairQueue()
    for ann, bob in costs:
        queue.push(("ann", ann), "ann", cost=ann)
        queue.push(("bob", bob), "bob", cost=bob)
    largest = max(max(pair) for pair in costs)
    served = {"ann": 0, "bob": 0}

    while {caller for caller, _ in queue.heads()} == {"ann", "bob"}:
        item = queue.heads()[0]
        queue.take(item)
        served[item[0]] += item[1]
        assert abs(served["ann"] - served["bob"]) <= 2 * largest


def test_callers_that_come_once_are_not_remembered_for_ever():
    """Time stands still while every request starts as soon as it comes, and with it what each caller owes."""
    queue: FairQueue[str] = FairQueue()
    for number in range(2 * AWAY_MAX):
        queue.push(f"item-{number}", f"caller-{number}")
        drain(queue)

    assert len(queue._callers) <= AWAY_MAX

    for number in range(2 * AWAY_MAX):
        item = f"gone-{number}"
        queue.push(item, f"visitor-{number}")
        queue.drop(item)

    assert len(queue._callers) <= AWAY_MAX
