"""A checkpoint for tests of where its bytes come from: real safetensors files, and the manifest made of them."""

import hashlib
import json
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from swarm_core.clock import SystemClock
from swarm_core.errors import ServableCorrupt
from swarm_core.manifest import FileEntry, Manifest, TensorEntry, manifest_sha256, manifest_to_json
from swarm_core.servable_parts import HubOrigin
from swarm_core.slices import LayerRange, slice_tensors
from swarm_fellow.host.weights.cache import ModelCache
from swarm_fellow.host.weights.cache_room import CacheRoom
from swarm_fellow.host.weights.fetch import FetchedSlice, ModelRef, SliceFetcher
from swarm_fellow.host.weights.sources import Chunk, ModelBytes, NearSource, Wanted

from tests.integration.fellow.scripted_hub import COMMIT, REPOSITORY

LAYERS = 4
CONFIG = b"{}" * 20


def hash_of(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()


def tensor_bytes(name: str, size_bytes: int = 4096) -> bytes:
    """Bytes of a tensor, its own and always the same."""
    return (hashlib.sha256(name.encode()).digest() * (size_bytes // 32 + 1))[:size_bytes]


def safetensors_of(tensors: dict[str, bytes]) -> tuple[bytes, dict[str, int]]:
    """A file of these F32 vectors side by side, and where each begins in it."""
    header, begin = {}, 0
    for name, raw in tensors.items():
        header[name] = {"dtype": "F32", "shape": [len(raw) // 4], "data_offsets": [begin, begin + len(raw)]}
        begin += len(raw)
    head = json.dumps(header).encode()
    begins = {name: 8 + len(head) + entry["data_offsets"][0] for name, entry in header.items()}
    return len(head).to_bytes(8, "little") + head + b"".join(tensors.values()), begins


@dataclass
class Checkpoint:
    """Two files of made-up tensors. files: name -> bytes. is_remote: its weights are on a hub, its manifest says."""

    is_remote: bool = True
    tensors: dict[str, bytes] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    size_bytes: int = 4096

    def __post_init__(self) -> None:
        names = ["model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"]
        names += [f"model.layers.{layer}.{part}.weight" for layer in range(LAYERS) for part in ("mlp", "norm")]
        self.tensors = {name: tensor_bytes(name, self.size_bytes) for name in sorted(names)}
        entries: dict[str, TensorEntry] = {}
        for number, chosen in enumerate((sorted(names)[:6], sorted(names)[6:])):
            file = f"model-{number}.safetensors"
            self.files[file], begins = safetensors_of({name: self.tensors[name] for name in chosen})
            for name, begin in begins.items():
                raw = self.tensors[name]
                entries[name] = TensorEntry(file, begin, len(raw), "F32", (len(raw) // 4,), hash_of(raw))
        origin = HubOrigin(REPOSITORY, COMMIT) if self.is_remote else None
        small = {"config.json": FileEntry(len(CONFIG), hash_of(CONFIG))}
        self.manifest = Manifest(REPOSITORY, "llama", LAYERS, 8, 8, 1, 8, False, 64, entries, small, origin=origin)

    def from_endpoint(self, endpoint: str) -> "Checkpoint":
        """The same, imported by a leader whose hub is this one."""
        self.manifest = replace(self.manifest, origin=HubOrigin(REPOSITORY, COMMIT, endpoint))
        return self

    @property
    def ref(self) -> ModelRef:
        return ModelRef(REPOSITORY, manifest_sha256(manifest_to_json(self.manifest)))

    def names(self, layer_start: int, layer_stop: int) -> list[str]:
        """Tensors of a stage."""
        return slice_tensors(self.manifest, LayerRange(layer_start, layer_stop, LAYERS))

    def slice_bytes(self, layer_start: int, layer_stop: int) -> int:
        return sum(len(self.tensors[name]) for name in self.names(layer_start, layer_stop))

    def write_to(self, folder: Path) -> Path:
        """As a Hugging Face folder."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, raw in self.files.items():
            (folder / name).write_bytes(raw)
        return folder


class LeaderOf:
    """A leader that knows a checkpoint. has_weights: else it answers as one whose model lies on a hub."""

    name, crosses_network, tries_max = "the leader", True, 8

    def __init__(self, checkpoint: Checkpoint, has_weights: bool = False) -> None:
        self._checkpoint = checkpoint
        self._has_weights = has_weights
        self.asked: list[str] = []

    async def manifest(self, model_id: str) -> bytes:
        return manifest_to_json(self._checkpoint.manifest)

    def may_ask_again(self, model: ModelBytes, name: str, mismatches: int) -> bool:
        return mismatches < 2

    async def fetch(self, model: ModelBytes, wanted: Sequence[Wanted]) -> AsyncGenerator[Chunk, None]:
        for item, want in enumerate(wanted):
            raw = CONFIG
            if want.is_tensor:
                self.asked.append(want.name)
                if not self._has_weights:
                    raise ServableCorrupt(f"this leader keeps no weights of {model.model_id}")
                raw = self._checkpoint.tensors[want.name]
            yield Chunk(item, want.offset, raw[want.offset :])


@dataclass
class Home:
    """A fellow's cache with its sources."""

    root: Path
    checkpoint: Checkpoint
    near: Sequence[NearSource]
    leader: LeaderOf
    bytes_free: int = 2**40

    def fetcher(self) -> SliceFetcher:
        """One that does not wait between tries."""
        room = CacheRoom(self.root, 0, lambda path: self.bytes_free)
        return SliceFetcher(self.leader, ModelCache(self.root), room, SystemClock(), lambda: 0.0, self.near)

    async def fetch(self, layer_start: int = 0, layer_stop: int = LAYERS) -> FetchedSlice:
        """Fetch a slice and check every byte of it."""
        fetched = await self.fetcher().fetch(self.checkpoint.ref, layer_start, layer_stop, lambda done, total: None)
        for name, path in fetched.base.tensor_files.items():
            raw = path.read_bytes()
            assert raw[8 + int.from_bytes(raw[:8], "little") :] == self.checkpoint.tensors[name], name
        assert sorted(fetched.base.tensor_files) == sorted(self.checkpoint.names(layer_start, layer_stop))
        fetched.use.release()
        return fetched

    def holds_nothing_wrong(self) -> bool:
        """Whether every named tensor file of the cache has the bytes of its name."""
        for path in (self.root / "tensors").glob("*.safetensors"):
            raw = path.read_bytes()
            if hash_of(raw[8 + int.from_bytes(raw[:8], "little") :]) != path.name[:64]:
                return False
        return True
