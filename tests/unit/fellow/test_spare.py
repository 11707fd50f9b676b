"""When a spare stage process is kept, and how often one that dies is tried again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from swarm_fellow.domain.spare import GIB, has_room, linger_s, retry_after_s


@pytest.mark.parametrize(
    ("mode", "free_bytes", "is_there", "expected"),
    [
        ("off", 2**40, True, False),
        ("on", 0, False, True),
        ("auto", None, False, False),
        ("auto", 2 * GIB, False, False),
        ("auto", 3 * GIB, False, True),
        ("auto", 2 * GIB, True, True),
        ("auto", GIB - 1, True, False),
    ],
)
def test_auto_keeps_a_spare_where_memory_is_left_and_ends_it_where_it_is_short(mode, free_bytes, is_there, expected):
    assert has_room(mode, free_bytes, is_there) is expected


def test_a_spare_waits_longer_after_a_crash_because_the_stage_comes_back():
    assert linger_s(has_crashed=True) > linger_s(has_crashed=False) > 0


@given(st.integers(1, 10_000))
def test_tries_grow_rarer_and_never_end(failures: int):
    assert 5.0 <= retry_after_s(failures) <= retry_after_s(failures + 1) <= 300.0
