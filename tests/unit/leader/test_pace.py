"""When a caller that was turned away should come again."""

from hypothesis import given
from hypothesis import strategies as st
from swarm_leader.domain.pace import Pace


def test_the_hint_is_the_time_a_quarter_of_the_queue_takes():
    pace = Pace(now_s=1000.0)
    for second in range(60):
        pace.note(1000.0 + second)

    assert pace.retry_after_s(waiting=64, now_s=1060.0) == 16  # one place a second


def test_what_happened_more_than_a_minute_ago_does_not_count():
    pace = Pace(now_s=1000.0)
    for _ in range(200):
        pace.note(1000.0)
    pace.note(2000.0)

    assert pace.retry_after_s(waiting=2, now_s=2030.0) == 30


def test_a_model_that_freed_no_place_yet_is_taken_to_free_one_now():
    assert Pace(now_s=1000.0).retry_after_s(waiting=4, now_s=1012.0) == 12


@given(
    st.lists(st.floats(0, 300), max_size=400).map(sorted),
    st.integers(0, 10_000),
    st.floats(0, 100),
)
def test_the_hint_is_between_a_second_and_a_minute(freed_s, waiting, later_s):
    pace = Pace(now_s=0.0)
    for at_s in freed_s:
        pace.note(at_s)

    assert 1 <= pace.retry_after_s(waiting, (freed_s[-1] if freed_s else 0.0) + later_s) <= 60
