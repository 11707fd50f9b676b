"""For how long a process has computed nothing."""

from hypothesis import given
from hypothesis import strategies as st
from swarm_fellow.domain.stillness import Stillness


@given(st.lists(st.floats(0, 3), min_size=1, max_size=20))
def test_a_process_that_computes_nothing_is_still_since_the_first_look(waits_s: list[float]):
    stillness, now_s = Stillness(100.0, 7.0), 100.0
    for wait_s in waits_s:
        now_s += wait_s
        still_s = stillness.look(now_s, 7.0)

    assert still_s == now_s - 100.0


@given(st.floats(0.01, 100), st.floats(0.1, 50))
def test_any_computing_counts_from_anew(used_s: float, waited_s: float):
    stillness = Stillness(0.0, 1.0)

    assert stillness.look(waited_s, 1.0) == waited_s
    assert stillness.look(waited_s, 1.01 + used_s) == 0.0
    assert stillness.look(2 * waited_s, 1.01 + used_s) == waited_s


def test_a_process_that_is_gone_is_not_still():
    stillness = Stillness(0.0, 1.0)

    assert stillness.look(60.0, None) == 0.0
