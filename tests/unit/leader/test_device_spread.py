"""Which layers go on which device of one fellow."""

from itertools import accumulate, combinations_with_replacement

from hypothesis import given, settings
from hypothesis import strategies as st
from swarm_leader.domain.planning.device_spread import Needs, fits, spread

amounts = st.integers(1, 30)
rooms = st.lists(st.none() | st.integers(0, 120), min_size=1, max_size=4)


def needs_of(layers: list[int], first: int = 0, last: int = 0, each: int = 0) -> Needs:
    """Layers of these sizes, what the first and the last one bring along, and what every device holds besides."""
    before = list(accumulate(layers, initial=0))

    def needs(start: int, stop: int) -> int:
        ends = (first if start == 0 else 0) + (last if stop == len(layers) else 0)
        return before[stop] - before[start] + ends + each

    return needs


models = st.builds(needs_of, st.lists(amounts, min_size=6, max_size=6), amounts, amounts, amounts)


@settings(max_examples=150, deadline=None)
@given(models, rooms)
def test_a_stage_is_spread_whenever_any_way_to_spread_it_fits(needs, room):
    """Every way is tried: where each device but the last stops."""
    possible = any(
        all(
            start == stop or free is None or needs(start, stop) <= free
            for start, stop, free in zip((0, *stops), (*stops, 6), room, strict=True)
        )
        for stops in combinations_with_replacement(range(7), len(room) - 1)
    )

    assert fits(needs, 0, 6, tuple(room)) is possible
    assert (spread(needs, 0, 6, tuple(room)) is not None) is possible


@settings(max_examples=150, deadline=None)
@given(models, rooms)
def test_every_layer_is_on_one_device_in_order_and_every_device_has_room(needs, room):
    runs = spread(needs, 0, 6, tuple(room)) or []

    assert [layer for _, start, stop in runs for layer in range(start, stop)] == (list(range(6)) if runs else [])
    assert [position for position, _, _ in runs] == sorted({position for position, _, _ in runs})
    assert all(room[position] is None or needs(start, stop) <= room[position] for position, start, stop in runs)


def test_devices_are_filled_to_the_same_share():
    runs = spread(needs_of([10] * 12), 0, 12, (300, 100, 200))

    assert runs == [(0, 0, 6), (1, 6, 8), (2, 8, 12)]


def test_embeddings_count_on_the_first_device_and_the_head_on_the_last():
    runs = spread(needs_of([10] * 12, first=20, last=40), 0, 12, (200, 200, 200))

    assert [stop - start for _, start, stop in runs] == [4, 6, 2]


def test_a_device_without_room_for_a_layer_is_left_out():
    assert spread(needs_of([10] * 4, each=30), 0, 4, (35, 100, 39, 100)) == [(1, 0, 2), (3, 2, 4)]


def test_a_device_of_unknown_room_is_taken_for_an_average_one():
    assert spread(needs_of([10] * 4), 0, 4, (100, None)) == [(0, 0, 2), (1, 2, 4)]
    assert spread(needs_of([10] * 4), 0, 4, (None, None)) == [(0, 0, 2), (1, 2, 4)]


def test_layers_in_the_middle_of_a_model_are_spread_alike():
    needs = needs_of([10] * 12, first=50, last=50)

    assert spread(needs, 4, 8, (100, 100)) == [(0, 4, 6), (1, 6, 8)]
    assert spread(needs, 4, 8, (15, 20)) is None
