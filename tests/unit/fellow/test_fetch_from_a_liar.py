"""Bytes from a leader that lies: counted against what was asked for, and never loaded when they are wrong."""

from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from pathlib import Path

import pytest
from swarm_core.clock import SystemClock
from swarm_core.errors import HashMismatch, Unavailable
from swarm_core.manifest import FileEntry, Manifest, TensorEntry, manifest_sha256, manifest_to_json
from swarm_fellow.host.weights.cache import ModelCache
from swarm_fellow.host.weights.cache_room import CacheRoom
from swarm_fellow.host.weights.fetch import ModelRef, SliceFetcher
from swarm_fellow.host.weights.sources import Chunk, ModelBytes, Wanted

RIGHT = {"config.json": b"{}" * 500, "model.embed_tokens.weight": b"e" * 4096, "model.layers.0.w": b"w" * 4096}
RIGHT |= {"model.norm.weight": b"n" * 64}
Answer = Callable[[Sequence[Wanted]], Iterator[Chunk]]


def hash_of(raw: bytes) -> str:
    return manifest_sha256(raw)


def manifest_json() -> bytes:
    """A model of one layer."""
    tensors = {
        name: TensorEntry("base/a.safetensors", 0, len(raw), "U8", (len(raw),), hash_of(raw))
        for name, raw in RIGHT.items()
        if name != "config.json"
    }
    files = {"config.json": FileEntry(len(RIGHT["config.json"]), hash_of(RIGHT["config.json"]))}
    return manifest_to_json(Manifest("m", "llama", 1, 8, 8, 1, 8, True, 64, tensors, files))


MODEL = ModelRef("m", manifest_sha256(manifest_json()))


class Liar:
    """A leader that answers every fetch so. asked: how often it was."""

    name, crosses_network, tries_max = "the leader", True, 8

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.asked = 0
        self.sent_bytes = 0

    async def manifest(self, model_id: str) -> bytes:
        """The honest one."""
        return manifest_json()

    def may_ask_again(self, model: ModelBytes, name: str, mismatches: int) -> bool:
        """As the real one."""
        return mismatches < 2

    async def fetch(self, model: ModelBytes, wanted: Sequence[Wanted]) -> AsyncGenerator[Chunk, None]:
        """Whatever the test wants."""
        self.asked += 1
        for chunk in self._answer(wanted):
            self.sent_bytes += len(chunk.payload)
            yield chunk


async def fetch(answer: Answer, root: Path) -> Liar:
    """Fetch everything, without waiting between tries."""
    liar = Liar(answer)
    fetcher = SliceFetcher(liar, ModelCache(root), CacheRoom(root, 0), SystemClock(), lambda: 0.0)
    await fetcher.fetch(MODEL, 0, 1, lambda done, total: None)
    return liar


def bytes_below(root: Path) -> int:
    return sum(path.stat().st_size for path in root.rglob("*") if path.is_file())


def honest(wanted: Sequence[Wanted]) -> Iterator[Chunk]:
    for position, want in enumerate(wanted):
        yield Chunk(position, want.offset, RIGHT[want.name][want.offset :])


def endless(wanted: Sequence[Wanted]) -> Iterator[Chunk]:
    """The first item, again and again."""
    while True:
        yield Chunk(0, 0, b"x" * 65_536)


def nothing(wanted: Sequence[Wanted]) -> Iterator[Chunk]:
    """No bytes, for ever: each one would count as a sign of life."""
    while True:
        yield Chunk(0, 0, b"")


def beyond(wanted: Sequence[Wanted]) -> Iterator[Chunk]:
    yield Chunk(0, 2**63, b"x")


def nobodys(wanted: Sequence[Wanted]) -> Iterator[Chunk]:
    yield Chunk(2**32 - 1, 0, b"x")


def large(wanted: Sequence[Wanted]) -> Iterator[Chunk]:
    yield Chunk(0, 0, bytes(30 * 2**20))


def after_the_end(wanted: Sequence[Wanted]) -> Iterator[Chunk]:
    yield from honest(wanted)
    while True:
        yield Chunk(0, len(RIGHT[wanted[0].name]), b"more")


def wrong(wanted: Sequence[Wanted]) -> Iterator[Chunk]:
    for position, want in enumerate(wanted):
        yield Chunk(position, want.offset, bytes(len(RIGHT[want.name]) - want.offset))


async def test_what_is_honest_is_fetched_once(tmp_path: Path):
    liar = await fetch(honest, tmp_path)

    assert liar.asked == 1 and liar.sent_bytes == sum(map(len, RIGHT.values()))


@pytest.mark.parametrize("answer", [endless, nothing, beyond, nobodys, large])
async def test_bytes_nobody_asked_for_end_the_load_and_do_not_reach_the_disk(tmp_path: Path, answer: Answer):
    with pytest.raises(Unavailable, match="bytes nobody asked for"):
        await fetch(answer, tmp_path)

    assert bytes_below(tmp_path) < 16_384
    assert not list(tmp_path.rglob("*.use"))


async def test_bytes_after_the_last_one_change_nothing(tmp_path: Path):
    liar = await fetch(after_the_end, tmp_path)

    assert liar.asked == 1 and not list(tmp_path.rglob("*.part"))


async def test_bytes_of_the_right_length_and_the_wrong_hash_are_asked_for_twice_and_never_kept(tmp_path: Path):
    liar = Liar(wrong)
    fetcher = SliceFetcher(liar, ModelCache(tmp_path), CacheRoom(tmp_path, 0), SystemClock(), lambda: 0.0)
    with pytest.raises(HashMismatch, match="came twice with wrong bytes"):
        await fetcher.fetch(MODEL, 0, 1, lambda done, total: None)

    assert liar.asked == 2
    assert not list(tmp_path.rglob("*.safetensors")) and not list(tmp_path.rglob("config.json"))


async def test_a_manifest_is_kept_once_there_is_room_for_the_load(tmp_path: Path):
    """A disk that others filled must not fail a load whose own cache has files to drop."""
    order: list[str] = []

    class Room(CacheRoom):
        def reserve(self, pieces):
            order.append("room" if not list(tmp_path.rglob("servable.json")) else "manifest first")
            return super().reserve(pieces)

    fetcher = SliceFetcher(Liar(honest), ModelCache(tmp_path), Room(tmp_path, 0), SystemClock(), lambda: 0.0)
    await fetcher.fetch(MODEL, 0, 1, lambda done, total: None)

    assert order == ["room"] and list(tmp_path.rglob("servable.json"))
