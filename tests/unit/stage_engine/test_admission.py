"""Who starts next: by tokens and places, fair between callers, nobody for ever behind others, everyone told."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from silentswarm.core.v1 import generation_pb2
from swarm_core.errors import ContextTooLong, Overloaded
from swarm_stage.engine.admission import OVERTAKES_MAX, WAITING_MAX, Admission
from swarm_stage.engine.budget import KvBudget
from swarm_stage.engine.reply import Note, Request, Waiting


class Door:
    """An admission with what everyone was told."""

    def __init__(self, kv_tokens: int = 1000, places: int = 8) -> None:
        self.budget = KvBudget(kv_tokens, kv_tokens)
        self.admission = Admission(self.budget, places)
        self.running: dict[int, Request] = {}
        self.told: dict[str, list[Note]] = {}
        self._number = 0

    def ask(self, name: str, tokens: int, caller: str = "", weight: float = 1.0, probe: bool = False) -> Request:
        told = self.told.setdefault(name, [])
        request = Request(
            request_id=name,
            prompt_ids=(1,) * (tokens - 1),
            sampling=generation_pb2.Sampling(),
            new_tokens_max=1,
            end_ids=frozenset(),
            notify=told.append,
            arrived_s=0.0,
            probe=probe,
            caller=caller,
            caller_weight=weight,
        )
        self.admission.enqueue(request)
        return request

    def start(self) -> list[str]:
        """Start all that may; their names."""
        started = []
        while (request := self.admission.next_admissible(len(self.running))) is not None:
            self._number += 1
            self.admission.enter(self._number, request)
            self.running[self._number] = request
            started.append(request.request_id)
        return started

    def end(self, name: str) -> None:
        number = next(number for number, request in self.running.items() if request.request_id == name)
        del self.running[number]
        self.admission.leave(number)

    def waiting(self, name: str) -> list[Waiting]:
        return [note for note in self.told[name] if isinstance(note, Waiting)]


def test_a_caller_with_fifty_requests_does_not_keep_one_of_anothers_waiting():
    door = Door(places=1)
    for number in range(50):
        door.ask(f"ann-{number}", 10, caller="ann")
    started = door.start()
    door.ask("bob", 10, caller="bob")
    door.end(started[0])

    assert door.start() == ["bob"]


def test_a_heavier_caller_starts_more_often():
    door = Door(places=1)
    for number in range(40):
        door.ask(f"ann-{number}", 10, caller="ann", weight=3)
        door.ask(f"bob-{number}", 10, caller="bob", weight=1)
    order = []
    for _ in range(20):
        order += door.start()
        door.end(order[-1])

    assert sum(name.startswith("ann") for name in order) == 15


def test_what_fits_passes_a_large_one_that_does_not_but_only_so_often():
    door = Door(kv_tokens=100, places=100)
    door.ask("first", 60, caller="eve")
    assert door.start() == ["first"]
    door.ask("large", 90, caller="ann")
    for number in range(20):
        door.ask(f"small-{number}", 1, caller="bob")
    passed = door.start()
    nobody = door.start()
    for name in passed:
        door.end(name)
    still_nobody = door.start()
    door.end("first")

    assert len(passed) == OVERTAKES_MAX
    assert nobody == [] and still_nobody == []
    assert door.start()[0] == "large"


def test_a_steady_stream_of_small_ones_does_not_starve_a_large_one():
    door = Door(kv_tokens=100, places=4)
    door.ask("large", 100, caller="ann")
    door.ask("s-0", 30, caller="bob")
    door.start()  # the large one starts, since all is free
    door.end("large")
    door.start()
    door.ask("large again", 100, caller="ann")
    turns = 0
    while "large again" not in {request.request_id for request in door.running.values()}:
        turns += 1
        assert turns < 40
        door.ask(f"s-{turns}", 30, caller="bob")
        door.start()
        small = [request.request_id for request in door.running.values() if request.request_id.startswith("s-")]
        if small:
            door.end(small[0])
        door.start()

    assert turns <= OVERTAKES_MAX + 4


def test_requests_of_one_caller_keep_their_order():
    door = Door(kv_tokens=100)
    door.ask("running", 50)
    door.start()
    door.ask("large", 80)
    door.ask("small", 5)

    assert door.start() == []


def test_a_request_that_waits_for_tokens_is_told_both_numbers():
    door = Door(kv_tokens=4096)
    door.ask("running", 3196)
    door.start()
    door.ask("next", 3000)
    door.admission.tell_waiting(0.0, len(door.running))

    assert door.waiting("next") == [Waiting(1, "needs 3,000 tokens of KV; 900 of 4,096 are free")]


def test_a_request_that_waits_for_a_place_is_told_how_many_there_are():
    door = Door(places=2)
    for name in ("a", "b", "c"):
        door.ask(name, 10)
    door.start()
    door.admission.tell_waiting(0.0, len(door.running))

    assert door.waiting("c") == [Waiting(1, "2 of 2 places are taken")]


def test_a_request_that_fits_and_stands_behind_others_is_told_how_many():
    door = Door(kv_tokens=100)
    door.ask("running", 50)
    door.start()
    door.ask("large", 80)
    for name in ("small", "last"):
        door.ask(name, 5)
    door.admission.tell_waiting(0.0, len(door.running))

    assert door.waiting("small") == [Waiting(2, "1 request is before it")]
    assert door.waiting("last") == [Waiting(3, "2 requests are before it")]


def test_a_position_is_told_again_when_it_changed_and_at_most_once_a_second():
    door = Door(places=1)
    for name in "abcd":
        door.ask(name, 10)
    (running,) = door.start()
    tell = door.admission.tell_waiting
    tell(0.0, 1)
    tell(0.1, 1)
    for at_s in (0.2, 0.4):
        door.end(running)
        (running,) = door.start()
        tell(at_s, 1)
    soon = [note.position for note in door.waiting("d")]
    tell(1.3, 1)

    assert soon == [3]
    assert [note.position for note in door.waiting("d")] == [3, 1]


def test_one_that_gave_up_is_no_longer_counted():
    door = Door(places=1)
    for name in "abc":
        door.ask(name, 10)
    door.start()
    door.admission.tell_waiting(0.0, 1)
    door.admission.forget("b")
    door.admission.tell_waiting(2.0, 1)

    assert door.admission.waiting == 1
    assert [note.position for note in door.waiting("c")] == [2, 1]


def test_a_probe_waits_for_nobody():
    door = Door(places=1)
    door.ask("a", 10)
    door.ask("b", 10)
    door.start()
    door.ask("probe", 2, probe=True)

    assert door.start() == ["probe"]


def test_what_can_never_fit_and_what_is_too_much_is_refused():
    door = Door(kv_tokens=100, places=1)
    with pytest.raises(ContextTooLong):
        door.ask("huge", 101)
    for number in range(WAITING_MAX):
        door.ask(str(number), 10, caller=str(number % 7))
    with pytest.raises(Overloaded, match=str(WAITING_MAX)):
        door.ask("one more", 10)


@settings(max_examples=100, deadline=None)
@given(
    kv_tokens=st.integers(20, 200),
    places=st.integers(1, 6),
    asks=st.lists(
        st.tuples(st.integers(2, 200), st.sampled_from("abcd"), st.sampled_from([0.5, 1.0, 4.0]), st.booleans()),
        min_size=1,
        max_size=40,
    ),
    order=st.randoms(use_true_random=False),
)
def test_everyone_starts_or_is_refused_within_the_budget_whatever_comes(kv_tokens, places, asks, order):
    door = Door(kv_tokens, places)
    expected, started = set(), []
    for index, (tokens, caller, weight, is_forgotten) in enumerate(asks):
        try:
            door.ask(str(index), tokens, caller, weight)
        except ContextTooLong:
            assert tokens > kv_tokens
            continue
        expected.add(str(index))
        started += door.start()
        if is_forgotten and str(index) not in started:
            door.admission.forget(str(index))
            expected.discard(str(index))
    while door.running or door.admission.waiting:
        assert door.running
        assert door.budget.reserved_tokens == sum(door.budget.reserved.values()) <= kv_tokens
        assert len(door.running) <= places
        door.end(order.choice(list(door.running.values())).request_id)
        started += door.start()

    assert set(started) == expected and len(started) == len(expected)
    assert door.budget.reserved_tokens == 0
