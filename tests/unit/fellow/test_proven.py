"""Cached tensors proven by their bytes: once a file, again when it was written to, dropped when wrong."""

import hashlib
import os
from pathlib import Path

import pytest
from swarm_core.manifest import TensorEntry
from swarm_fellow.host.weights.cache import ModelCache, Piece
from swarm_fellow.host.weights.cache_room import CacheRoom
from swarm_fellow.host.weights.proven import ProvenTensors

PAYLOAD = bytes(range(64))


@pytest.fixture
def piece(tmp_path: Path) -> Piece:
    """A whole tensor in a cache."""
    entry = TensorEntry("base/x", 0, len(PAYLOAD), "F32", (4, 4), hashlib.sha256(PAYLOAD).hexdigest())
    made = ModelCache(tmp_path).tensor("model.norm.weight", entry)
    made.path.parent.mkdir()
    made.path.write_bytes(made.header + PAYLOAD)
    return made


def test_a_proven_tensor_is_known_until_it_is_written_to(piece: Piece, tmp_path: Path):
    proven = ProvenTensors()
    assert not proven.knows(piece)
    assert proven.prove(piece) and proven.knows(piece)
    CacheRoom(tmp_path, 0).reserve([piece]).release()
    assert proven.knows(piece), "a use is no change"

    piece.path.write_bytes(piece.header + PAYLOAD)
    os.utime(piece.path, ns=(1, 1))
    assert not proven.knows(piece)


@pytest.mark.parametrize("place", [0, 20, -1], ids=["length", "header", "bytes"])
def test_a_tensor_with_a_wrong_byte_is_dropped(piece: Piece, place: int):
    raw = bytearray(piece.path.read_bytes())
    raw[place] ^= 4
    piece.path.write_bytes(raw)

    assert piece.is_complete() and not ProvenTensors().prove(piece)
    assert not piece.path.exists()


def test_what_is_gone_is_not_proven(piece: Piece):
    proven = ProvenTensors()
    proven.remember(piece)
    piece.path.unlink()

    assert not proven.knows(piece) and not proven.prove(piece)
