"""Ranges of a hub's files: every byte wanted, none beside it, neighbours together."""

from hypothesis import given
from hypothesis import strategies as st
from swarm_fellow.domain.hub_ranges import Stretch, plan_ranges

STRETCHES = st.lists(
    st.builds(
        Stretch,
        item=st.integers(0, 30),
        file=st.sampled_from(["a", "b"]),
        begin=st.integers(0, 60),
        offset=st.just(0),
        size_bytes=st.integers(0, 12),
    ),
    max_size=12,
)


@given(STRETCHES)
def test_what_is_asked_for_is_what_is_wanted(stretches: list[Stretch]):
    """Also when a manifest lets tensors overlap: each item then has a range with its own bytes."""
    ranges = plan_ranges(stretches)
    asked_bytes = sum(one.end - one.begin for one in ranges)
    placed = [stretch for one in ranges for stretch in one.stretches]

    assert sorted(placed, key=repr) == sorted((one for one in stretches if one.size_bytes), key=repr)
    assert asked_bytes == sum(stretch.size_bytes for stretch in stretches)
    for one in ranges:
        assert one.stretches[0].begin == one.begin and {stretch.file for stretch in one.stretches} == {one.file}
        ends = [stretch.begin + stretch.size_bytes for stretch in one.stretches]
        assert ends[:-1] == [stretch.begin for stretch in one.stretches[1:]] and ends[-1] == one.end


def test_neighbours_become_one_range_and_a_hole_two():
    first, second, third = Stretch(0, "a", 100, 0, 10), Stretch(1, "a", 110, 5, 20), Stretch(2, "a", 131, 0, 1)
    ranges = plan_ranges([third, second, first])

    assert [(one.begin, one.end) for one in ranges] == [(100, 130), (131, 132)]
    assert ranges[0].stretches == (first, second)
