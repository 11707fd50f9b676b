"""Where training cut: whatever shards hold, the cuts are read off them exactly, or refused."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from swarm_core.errors import ServableCorrupt
from swarm_leader.catalog.sources.shards import Placed, place_recorded, place_unrecorded

CUTS = (
    st.integers(1, 30)
    .flatmap(
        lambda layers: st.tuples(st.just(layers), st.sets(st.integers(1, max(layers - 1, 1)), max_size=6).map(sorted))
    )
    .filter(lambda cut: not cut[1] or cut[1][-1] < cut[0])
)


@given(cut=CUTS, is_local=st.booleans())
def test_cuts_are_found_again_with_and_without_a_record(cut: tuple[int, list[int]], is_local: bool):
    layer_count, boundaries = cut
    ranges = list(pairwise((0, *boundaries, layer_count)))
    shards = [set(range(0, stop - start) if is_local else range(start, stop)) for start, stop in ranges]
    starts = tuple(start for start, _ in ranges)

    placed = place_recorded(shards, boundaries, layer_count)
    assert placed == place_unrecorded(shards, layer_count)
    assert placed == Placed(starts, starts if is_local and len(starts) > 1 else (0,) * len(starts))


@given(
    shards=st.lists(st.sets(st.integers(0, 9)), min_size=1, max_size=4),
    boundaries=st.lists(st.integers(1, 9), max_size=3, unique=True).map(sorted),
    layer_count=st.integers(1, 10),
)
def test_what_is_placed_covers_every_layer_once(shards: list[set[int]], boundaries: list[int], layer_count: int):
    for place in (
        lambda: place_unrecorded(shards, layer_count),
        lambda: place_recorded(shards, boundaries, layer_count),
    ):
        try:
            placed = place()
        except ServableCorrupt:
            continue
        held = [layer + offset for layers, offset in zip(shards, placed.offsets, strict=True) for layer in layers]
        assert sorted(held) == list(range(layer_count))
        assert [min(layers) + offset for layers, offset in zip(shards, placed.offsets, strict=True)] == list(
            placed.layer_starts
        )


def test_an_adapter_need_not_change_every_layer_where_the_cuts_are_recorded():
    assert place_recorded([{1}, set(), {5}], [2, 4], 6, needs_all=False) == Placed((0, 2, 4), (0, 0, 0))
    with pytest.raises(ServableCorrupt, match="stage-0 lacks layer 0"):
        place_recorded([{1}, set(), {5}], [2, 4], 6)
