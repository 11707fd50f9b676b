"""Room in the model cache: what is dropped, in which order, and what never is."""

import hashlib
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from swarm_core.errors import DiskFull
from swarm_core.manifest import TensorEntry
from swarm_fellow.domain.cache_room import CachedFile, bytes_to_drop, choose_dropped
from swarm_fellow.host.weights.cache import DISK_MARGIN_BYTES, ModelCache, Part, Piece
from swarm_fellow.host.weights.cache_room import CacheRoom

TENSOR_BYTES = 4096
FILES = st.lists(
    st.builds(CachedFile, st.uuids().map(str), st.integers(1, 1000), st.floats(0, 100)),
    max_size=12,
    unique_by=lambda f: f.name,
)


def tensor(root: Path, name: str, is_fetched: bool = True, used_s: float | None = None) -> Piece:
    """A tensor of 4 KiB, fetched or not. used_s: when it was used last."""
    raw = name.encode().ljust(TENSOR_BYTES, b".")
    entry = TensorEntry("w", 0, len(raw), "F32", (1024,), hashlib.sha256(raw).hexdigest())
    piece = ModelCache(root).tensor(name, entry)
    if is_fetched:
        part = Part.claim(piece)
        assert part is not None
        part.append(raw)
        part.finish()
        part.release()
        if used_s is not None:
            os.utime(piece.path, (used_s, used_s))
    return piece


def room_for(root: Path, tensors: float) -> CacheRoom:
    """Room with a limit of so many tensors, headers included."""
    return CacheRoom(root, int(tensors * (TENSOR_BYTES + 128)))


@given(FILES, st.integers(0, 5000))
def test_the_least_recently_used_go_first_and_no_more_than_needed(files: list[CachedFile], wanted_bytes: int):
    dropped = choose_dropped(files, wanted_bytes)
    by_name = {file.name: file for file in files}
    given_bytes = sum(by_name[name].size_bytes for name in dropped)
    kept = [file for file in files if file.name not in dropped]

    assert given_bytes >= wanted_bytes or not kept
    assert not dropped or given_bytes - by_name[dropped[-1]].size_bytes < wanted_bytes
    assert all(by_name[name].used_s <= file.used_s for name in dropped for file in kept)


@pytest.mark.parametrize(
    ("incoming", "disk_free", "cached", "cached_max", "dropped"),
    [
        (100, 1000, 500, 0, 0),
        (100, 50, 500, 0, 60),
        (0, 5, 500, 0, 0),
        (100, 1000, 500, 550, 50),
        (0, 1000, 500, 450, 50),
        (100, 50, 500, 590, 60),
    ],
)
def test_what_is_dropped_is_what_the_disk_or_the_limit_is_short_of(incoming, disk_free, cached, cached_max, dropped):
    assert bytes_to_drop(incoming, disk_free, 10, cached, cached_max) == dropped


def test_a_cache_over_its_limit_drops_what_was_used_longest_ago(tmp_path: Path):
    old, older = tensor(tmp_path, "old", used_s=2000), tensor(tmp_path, "older", used_s=1000)
    fresh = tensor(tmp_path, "fresh", is_fetched=False)
    room_for(tmp_path, 2).reserve([fresh])

    assert old.is_complete() and not older.is_complete()


def test_a_part_that_nobody_fetches_any_more_is_dropped_too(tmp_path: Path):
    stale = tensor(tmp_path, "stale", is_fetched=False)
    stale.part_path.parent.mkdir(parents=True)
    stale.part_path.write_bytes(bytes(TENSOR_BYTES))
    room_for(tmp_path, 1).reserve([tensor(tmp_path, "fresh", is_fetched=False)])

    assert not stale.part_path.exists()


def test_what_a_stage_needs_stays_whatever_the_limit_until_it_is_gone(tmp_path: Path):
    held = tensor(tmp_path, "held", used_s=1000)
    other_fellow, ours = room_for(tmp_path, 1), room_for(tmp_path, 1)
    use = other_fellow.reserve([held])
    ours.reserve([tensor(tmp_path, "fresh", is_fetched=False)]).release()
    stayed = held.is_complete()
    use.release()
    ours.reserve([tensor(tmp_path, "fresh", is_fetched=False)])

    assert stayed and not held.is_complete()


def test_a_use_that_a_killed_fellow_left_behind_holds_nothing(tmp_path: Path):
    left = tensor(tmp_path, "left", used_s=1000)
    (tmp_path / "uses").mkdir()
    (tmp_path / "uses" / "dead.use").write_text(left.path.name)
    room_for(tmp_path, 1).reserve([tensor(tmp_path, "fresh", is_fetched=False)])

    assert not left.is_complete() and not (tmp_path / "uses" / "dead.use").exists()


def test_a_load_makes_its_files_the_most_recently_used(tmp_path: Path):
    first, second = tensor(tmp_path, "first", used_s=1000), tensor(tmp_path, "second", used_s=2000)
    room = room_for(tmp_path, 2)
    room.reserve([first]).release()
    room.reserve([tensor(tmp_path, "fresh", is_fetched=False)])

    assert first.is_complete() and not second.is_complete()


def test_a_short_disk_takes_the_place_of_what_nobody_needs(tmp_path: Path):
    held, idle = tensor(tmp_path, "held", used_s=1000), tensor(tmp_path, "idle", used_s=2000)
    CacheRoom(tmp_path, 0).reserve([held])
    short = CacheRoom(tmp_path, 0, lambda path: DISK_MARGIN_BYTES + TENSOR_BYTES // 2)
    short.reserve([tensor(tmp_path, "fresh", is_fetched=False)])

    assert held.is_complete() and not idle.is_complete()


def test_what_the_disk_cannot_hold_is_refused_with_the_numbers_and_costs_no_cached_file(tmp_path: Path):
    idle = tensor(tmp_path, "idle")
    huge = Piece("w", True, 2**60, "0" * 64, tmp_path / "tensors" / "w")

    with pytest.raises(DiskFull, match=str(2**60)) as refused:
        CacheRoom(tmp_path, 0).reserve([huge])
    assert int(refused.value.facts["free_bytes"]) > 0
    assert idle.is_complete() and not list((tmp_path / "uses").glob("*.use"))
