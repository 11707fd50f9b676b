"""Parts on disk: claims, resumption, verification, and what a full disk says."""

import errno
import hashlib
from pathlib import Path

import pytest
from swarm_core.errors import DiskFull
from swarm_core.manifest import FileEntry, TensorEntry
from swarm_fellow.host.weights.cache import ModelCache, Part, Piece, disk_errors, safetensors_header

RAW = bytes(range(256)) * 16
SHA = hashlib.sha256(RAW).hexdigest()


def tensor_piece(folder: Path, shape: tuple[int, ...] = (1024,)) -> Piece:
    return ModelCache(folder).tensor("w", TensorEntry("base/w.safetensors", 0, len(RAW), "F32", shape, SHA))


def claim(piece: Piece) -> Part:
    part = Part.claim(piece)
    assert part is not None
    return part


def test_a_finished_tensor_is_a_safetensors_file_others_can_read(tmp_path: Path):
    safetensors = pytest.importorskip("safetensors.numpy")
    piece = tensor_piece(tmp_path, (32, 32))
    part = claim(piece)
    part.append(RAW)

    assert part.finish() and piece.is_complete()
    loaded = safetensors.load_file(piece.path)["tensor"]
    assert loaded.shape == (32, 32) and loaded.tobytes() == RAW
    assert not piece.part_path.exists()


@pytest.mark.parametrize("shape", [(), (7,), (3, 5, 7), (128_256, 4096)])
def test_a_header_is_padded_to_eight_bytes(shape: tuple[int, ...]):
    header = safetensors_header(TensorEntry("f", 0, 4, "F32", shape, SHA))

    assert len(header) % 8 == 0 and int.from_bytes(header[:8], "little") == len(header) - 8


def test_equal_bytes_of_another_shape_are_another_file(tmp_path: Path):
    assert tensor_piece(tmp_path, (1024,)).path != tensor_piece(tmp_path, (32, 32)).path


def test_a_part_goes_on_where_it_was_left(tmp_path: Path):
    piece = tensor_piece(tmp_path)
    first = claim(piece)
    first.append(RAW[:1000])
    first.release()
    second = claim(piece)

    assert second.received_bytes == 1000
    second.append(RAW[1000:])
    assert second.finish()


@pytest.mark.parametrize("rubbish", [b"", b"short", b"x" * 100, b"y" * 10_000])
def test_a_part_that_cannot_be_a_beginning_is_begun_again(tmp_path: Path, rubbish: bytes):
    piece = tensor_piece(tmp_path)
    piece.part_path.parent.mkdir(parents=True)
    piece.part_path.write_bytes(rubbish)
    part = claim(piece)

    assert part.received_bytes == 0
    part.append(RAW)
    assert part.finish()


def test_only_one_holds_a_piece_and_nobody_needs_one_that_is_complete(tmp_path: Path):
    piece = tensor_piece(tmp_path)
    part = claim(piece)
    assert Part.claim(piece) is None
    part.append(RAW)
    part.finish()
    part.release()

    assert Part.claim(piece) is None and not piece.part_path.exists()


def test_wrong_bytes_are_dropped_and_what_is_discarded_leaves_nothing(tmp_path: Path):
    piece = tensor_piece(tmp_path)
    part = claim(piece)
    part.append(bytes(len(RAW)))
    assert not part.finish() and part.received_bytes == 0
    assert part.mismatches == 1 and part.found_sha256 == hashlib.sha256(bytes(len(RAW))).hexdigest()
    part.discard()
    part.release()

    assert not piece.path.exists() and not piece.part_path.exists()


def test_a_small_file_that_was_changed_on_disk_is_not_complete(tmp_path: Path):
    piece = ModelCache(tmp_path).file("0" * 64, "config.json", FileEntry(len(RAW), SHA))
    part = claim(piece)
    part.append(RAW)
    part.finish()
    assert piece.is_complete()
    piece.path.write_bytes(RAW[::-1])

    assert not piece.is_complete()


def test_a_disk_that_fills_up_in_a_write_says_what_is_free(tmp_path: Path):
    with pytest.raises(DiskFull, match="make room") as refused, disk_errors(tmp_path / "deep" / "file"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert "free_bytes" in refused.value.facts


def test_a_released_part_takes_no_more_bytes(tmp_path: Path):
    part = claim(tensor_piece(tmp_path))
    part.release()

    with pytest.raises(DiskFull):
        part.append(b"x")
