"""When a process that does not answer counts as frozen: one that runs has longer than one that does not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from swarm_fellow.domain.silence import LOOK_MAX_S, SILENT_MAX_S, SILENT_S, ProcessState, Silence, Vitality

LOOK_S = 0.25
ASLEEP = Vitality(ProcessState.ASLEEP, 5.0)
HELD_UP = Vitality(ProcessState.HELD_UP, 5.0)


def judged_after_s(seen: list[Vitality], max_s: float = SILENT_MAX_S) -> float:
    """How long it is waited for when each look sees the next of these, the last one for ever."""
    silence = Silence(100.0, seen[0], max_s)
    for number in range(1, 100):
        if silence.look(100.0 + number * LOOK_S, seen[min(number, len(seen) - 1)]):
            return number * LOOK_S
    return float("inf")


def computing(looks: int) -> list[Vitality]:
    """It computes a hundredth of a second between two looks, so often, and then nothing."""
    return [Vitality(ProcessState.ASLEEP, 5.0 + 0.01 * number) for number in range(looks + 1)]


@pytest.mark.parametrize("state", [ProcessState.STOPPED, ProcessState.GONE])
def test_one_that_is_stopped_or_gone_is_judged_at_the_first_look(state: ProcessState):
    assert judged_after_s([HELD_UP, Vitality(state, 6.0)]) == LOOK_S
    assert state.value in Silence(0.0, ASLEEP).look(LOOK_S, Vitality(state))


def test_one_that_neither_computes_nor_wants_to_has_a_second():
    assert judged_after_s([ASLEEP]) == SILENT_S


def test_one_that_computes_or_waits_for_a_processor_has_three():
    assert judged_after_s(computing(99)) == SILENT_MAX_S
    assert judged_after_s([HELD_UP]) == SILENT_MAX_S


def test_one_that_stops_computing_has_a_second_from_then():
    assert judged_after_s(computing(4)) == 4 * LOOK_S + SILENT_S


@given(st.lists(st.sampled_from([ASLEEP, HELD_UP, *computing(12)]), min_size=1), st.floats(0.3, 10))
def test_nobody_is_waited_for_longer_than_allowed(seen: list[Vitality], max_s: float):
    assert judged_after_s(seen, max_s) <= min(max_s, SILENT_MAX_S) + LOOK_S


@given(st.floats(LOOK_MAX_S, 60))
def test_time_in_which_nobody_looked_is_not_its_silence(slept_s: float):
    """The fellow did not run itself: the answer may lie in its socket."""
    silence = Silence(0.0, ASLEEP)

    assert silence.look(slept_s, ASLEEP) == ""
    assert silence.look(slept_s + LOOK_S, ASLEEP) == ""
    assert silence.look(slept_s + LOOK_S + LOOK_MAX_S, ASLEEP) != ""
