"""When `swarm up` starts again what died, and when it gives up."""

import random

import pytest
from swarm_cli.up.restart import Restarts


@pytest.fixture
def start_s() -> float:
    """Some moment of the monotonic clock, never 0."""
    return random.Random().uniform(1e3, 1e6)


def die(restarts: Restarts, at_s: float, lived_s: float, name: str = "fellow-1") -> float | None:
    """A process starts, and dies `lived_s` later, at `at_s`."""
    restarts.note_start(name, at_s - lived_s)
    return restarts.note_death(name, at_s)


def test_waits_double_up_to_ten_seconds(start_s):
    restarts = Restarts()
    waits = [die(restarts, start_s + 30 * number, lived_s=20) for number in range(8)]

    assert waits == [0.25, 0.5, 1, 2, 4, 8, 10, 10]


def test_a_minute_of_life_makes_the_next_death_the_first(start_s):
    restarts = Restarts()
    first, second = die(restarts, start_s, lived_s=20), die(restarts, start_s + 30, lived_s=20)
    after_a_life = die(restarts, start_s + 100, lived_s=60)

    assert (first, second, after_a_life) == (0.25, 0.5, 0.25)


def test_five_deaths_at_once_within_a_minute_are_the_end(start_s):
    restarts = Restarts()
    waits = [die(restarts, start_s + 5 * number, lived_s=1) for number in range(5)]

    assert waits == [0.25, 0.5, 1, 2, None]


def test_deaths_at_once_that_are_far_apart_are_not_the_end(start_s):
    restarts = Restarts()
    waits = [die(restarts, start_s + 20 * number, lived_s=1) for number in range(9)]

    assert None not in waits


def test_deaths_after_a_while_are_not_the_end(start_s):
    restarts = Restarts()
    waits = [die(restarts, start_s + 11 * number, lived_s=11) for number in range(9)]

    assert None not in waits


def test_each_has_its_own_count_and_is_due_once(start_s):
    restarts = Restarts()
    for number in range(4):
        die(restarts, start_s + number, lived_s=1, name="leader")
    wait_s = die(restarts, start_s + 4, lived_s=1, name="fellow-1")
    restarts.note_start("leader", start_s + 4)

    assert wait_s == 0.25
    assert restarts.next_in_s(start_s + 4) == pytest.approx(0.25)
    assert restarts.take_due(start_s + 4.2) == []
    assert restarts.take_due(start_s + 4.3) == ["fellow-1"]
    assert restarts.take_due(start_s + 4.3) == []
    assert restarts.next_in_s(start_s + 4.3) is None
