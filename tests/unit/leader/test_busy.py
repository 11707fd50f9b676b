"""How busy a stage was in the last minute."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from swarm_leader.domain.busy import BusyShare


def test_the_share_is_that_between_two_reports():
    share = BusyShare()
    share.note(loaded_s=10.0, busy_s=4.0)
    assert share.share is None

    share.note(loaded_s=20.0, busy_s=9.0)

    assert share.share == pytest.approx(0.5)


def test_what_was_more_than_a_minute_ago_does_not_count():
    share = BusyShare()
    for second in range(0, 605, 5):  # busy for five minutes, then idle for five
        share.note(loaded_s=second + 1.0, busy_s=min(second, 300.0))

    assert share.share == 0.0


def test_a_stage_that_was_loaded_anew_begins_anew():
    share = BusyShare()
    share.note(100.0, 90.0)
    share.note(200.0, 180.0)

    share.note(1.0, 0.0)

    assert share.share is None


def test_a_stage_that_says_nothing_has_no_share():
    share = BusyShare()
    for _ in range(3):
        share.note(0.0, 0.0)

    assert share.share is None


@given(st.lists(st.tuples(st.floats(0, 1e5), st.floats(0, 1e5)), max_size=50))
def test_it_is_always_a_share_whatever_is_reported(reports):
    share = BusyShare()
    for loaded_s, busy_s in reports:
        share.note(loaded_s, busy_s)

    assert share.share is None or 0.0 <= share.share <= 1.0
