"""Folders of models' small files: counted, kept while a stage needs them, dropped like everything else."""

import hashlib
from pathlib import Path

import pytest
from swarm_core.errors import DiskFull, ServableCorrupt
from swarm_core.manifest import MANIFEST_BYTES_MAX, MANIFEST_NAME, FileEntry
from swarm_fellow.host.weights.cache import DISK_MARGIN_BYTES, ModelCache, Part, Piece
from swarm_fellow.host.weights.cache_room import CacheRoom

FILE_BYTES = 4096


def sha_of(number: int) -> str:
    return hashlib.sha256(str(number).encode()).hexdigest()


def small_file(root: Path, number: int, is_fetched: bool = True) -> Piece:
    """The config of the n-th model, 4 KiB, fetched or not."""
    raw = str(number).encode().ljust(FILE_BYTES, b" ")
    cache = ModelCache(root)
    piece = cache.file(sha_of(number), "config.json", FileEntry(len(raw), hashlib.sha256(raw).hexdigest()))
    if is_fetched:
        part = Part.claim(piece)
        assert part is not None
        part.append(raw)
        part.finish()
        part.release()
        cache.write_manifest(sha_of(number), b"{}")
    return piece


def test_ever_new_models_do_not_grow_the_cache_beyond_its_limit(tmp_path: Path):
    room = CacheRoom(tmp_path, 4 * FILE_BYTES)
    for number in range(20):
        room.reserve([small_file(tmp_path, number, is_fetched=False)]).release()
        small_file(tmp_path, number)

    assert len(list((tmp_path / "models").iterdir())) <= 4
    assert room.held_bytes() <= 5 * FILE_BYTES


def test_the_folder_of_a_model_in_use_stays_and_goes_whole_afterwards(tmp_path: Path):
    held = small_file(tmp_path, 1)
    use = CacheRoom(tmp_path, 1).reserve([held])
    other = CacheRoom(tmp_path, 1)
    other.reserve([small_file(tmp_path, 2, is_fetched=False)]).release()
    stayed = held.is_complete()
    use.release()
    other.reserve([small_file(tmp_path, 2, is_fetched=False)]).release()

    assert stayed and not held.path.parent.exists()


def test_a_short_disk_takes_the_place_of_models_nobody_needs(tmp_path: Path):
    idle = small_file(tmp_path, 1)
    short = CacheRoom(tmp_path, 0, lambda path: DISK_MARGIN_BYTES + FILE_BYTES // 2)
    short.reserve([small_file(tmp_path, 2, is_fetched=False)])

    assert not idle.path.parent.exists()


def test_a_manifest_that_cannot_be_written_leaves_no_half_of_it(tmp_path: Path):
    cache = ModelCache(tmp_path)
    (cache.model_dir(sha_of(1)) / MANIFEST_NAME).mkdir(parents=True)  # stands in for a disk that refuses

    with pytest.raises(DiskFull):
        cache.write_manifest(sha_of(1), b"{}")
    assert [path.name for path in cache.model_dir(sha_of(1)).iterdir()] == [MANIFEST_NAME]


def test_a_manifest_file_of_any_size_is_read_up_to_what_one_may_have(tmp_path: Path):
    cache = ModelCache(tmp_path)
    cache.write_manifest(sha_of(1), b"{}")
    with (cache.model_dir(sha_of(1)) / MANIFEST_NAME).open("r+b") as file:
        file.truncate(100 * MANIFEST_BYTES_MAX)  # a hole

    assert cache.read_manifest(sha_of(1)) is None


@pytest.mark.parametrize("name", ["../config.json", "/etc/config.json", "a\0.json", "..", "", "tokenizer/../../x.json"])
def test_a_small_file_never_leaves_its_model(tmp_path: Path, name: str):
    with pytest.raises(ServableCorrupt):
        ModelCache(tmp_path).file(sha_of(1), name, FileEntry(1, sha_of(1)))
