"""Fetches what a stage needs and the cache lacks: base and adapters together. Decides no placement, opens no source."""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from swarm_core.clock import Clock
from swarm_core.errors import BadRequest, HashMismatch, SwarmError
from swarm_core.manifest import Manifest, manifest_from_json, manifest_sha256
from swarm_core.slices import LayerRange, slice_tensors

from swarm_fellow.domain.backoff import Draw, redial_delay_s
from swarm_fellow.host.weights.bring import RETRYABLE, FetchProgress, PieceBringer, Run, take
from swarm_fellow.host.weights.cache import ModelCache, Piece
from swarm_fellow.host.weights.cache_room import CacheRoom, CacheUse
from swarm_fellow.host.weights.sources import LeaderSource, ModelBytes, NearSource

TRIES_WITHOUT_PROGRESS_MAX = 8
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)


@dataclass(frozen=True)
class ModelRef:
    """A model of the leader's catalog, as it was when a load was planned."""

    model_id: str
    manifest_sha256: str


@dataclass(frozen=True)
class FetchedModel:
    """A slice of one model on disk. tensor_files: checkpoint name -> file."""

    manifest: Manifest
    model_dir: Path
    tensor_files: dict[str, Path]


@dataclass(frozen=True)
class FetchedSlice:
    """What a stage needs, on disk. adapters: in the order asked for. fetched_bytes: what came over the network for it.

    use: keeps the files on disk until it is released.
    """

    base: FetchedModel
    adapters: tuple[FetchedModel, ...]
    fetched_bytes: int
    use: CacheUse


@dataclass(frozen=True)
class _Planned:
    """One model of a load. manifest_json: what to keep of it, None when it is kept already."""

    model: ModelBytes
    manifest_json: bytes | None
    tensors: dict[str, Piece]
    files: list[Piece]


class SliceFetcher:
    """Brings slices to disk. Safe to use for several loads at once, also beside other fellows on the same cache.

    near: asked before the leader, in this order.
    """

    def __init__(
        self,
        leader: LeaderSource,
        cache: ModelCache,
        room: CacheRoom,
        clock: Clock,
        draw: Draw,
        near: Sequence[NearSource] = (),
    ) -> None:
        self._leader = leader
        self._cache = cache
        self._room = room
        self._draw = draw
        self._bringer = PieceBringer(near, leader, clock, draw)

    @property
    def fetched_bytes(self) -> int:
        """What came over the network since the start."""
        return self._bringer.fetched_bytes

    async def fetch(
        self,
        base: ModelRef,
        layer_start: int,
        layer_stop: int,
        progress: FetchProgress,
        adapters: Sequence[ModelRef] = (),
    ) -> FetchedSlice:
        """Bring exactly the tensors of these layers (half open) and the small files of base and adapters to disk.

        Raises BadRequest (layers that do not exist, an adapter in the base's place or of another shape), HashMismatch
        (a manifest or a tensor is not what was promised, also when fetched again), DiskFull, ServableCorrupt,
        Unavailable (8 tries or 300 s without a byte), or what the leader answers.
        """
        planned = [await self._plan(base, layer_start, layer_stop)]
        for ref in adapters:
            planned.append(await self._plan(ref, layer_start, layer_stop, of=planned[0].model))
        # Equal bytes are fetched once, whichever model they are of.
        models = {piece.path: one.model for one in reversed(planned) for piece in (*one.files, *one.tensors.values())}
        pieces = list(
            {piece.path: piece for one in reversed(planned) for piece in (*one.files, *one.tensors.values())}.values()
        )
        run = Run(models, sum(piece.size_bytes for piece in pieces), progress)
        use = await take(lambda: self._room.reserve(pieces), CacheUse.release)
        try:
            for one in planned:
                if one.manifest_json is not None:  # only now: there may have been no room for it
                    await asyncio.to_thread(self._cache.write_manifest, one.model.manifest_sha256, one.manifest_json)
            await self._bringer.bring(pieces, run)
        except BaseException:
            use.release()
            raise
        fetched = [self._fetched(one) for one in planned]
        return FetchedSlice(base=fetched[0], adapters=tuple(fetched[1:]), fetched_bytes=run.fetched_bytes, use=use)

    def _fetched(self, planned: _Planned) -> FetchedModel:
        return FetchedModel(
            manifest=planned.model.manifest,
            model_dir=self._cache.model_dir(planned.model.manifest_sha256),
            tensor_files={name: piece.path for name, piece in planned.tensors.items()},
        )

    async def _plan(self, ref: ModelRef, layer_start: int, layer_stop: int, of: ModelBytes | None = None) -> _Planned:
        """What is needed of one model. of: the base, when it is an adapter."""
        manifest_json, is_kept = await self._manifest(ref.model_id, ref.manifest_sha256)
        manifest = await asyncio.to_thread(manifest_from_json, manifest_json)
        if not 0 <= layer_start < layer_stop <= manifest.layer_count:
            raise BadRequest(
                f"layers {layer_start} to {layer_stop} do not exist: {ref.model_id} has {manifest.layer_count}",
                field="layer_stop",
            )
        _check_place(ref.model_id, manifest, of)
        names = slice_tensors(manifest, LayerRange(layer_start, layer_stop, manifest.layer_count))
        return _Planned(
            ModelBytes(ref.model_id, ref.manifest_sha256, manifest),
            None if is_kept else manifest_json,
            {name: self._cache.tensor(name, manifest.tensors[name]) for name in names},
            [self._cache.file(ref.manifest_sha256, name, entry) for name, entry in manifest.files.items()],
        )

    async def _manifest(self, model_id: str, expected_sha256: str) -> tuple[bytes, bool]:
        """The manifest of this hash, and whether it lies in the cache."""
        if not _SHA256.fullmatch(expected_sha256):  # it names a folder of ours
            raise BadRequest(f"{expected_sha256[:100]!r} is not the SHA-256 of a manifest", field="manifest_sha256")
        manifest_json = await asyncio.to_thread(self._cache.read_manifest, expected_sha256)
        if manifest_json is not None:
            return manifest_json, True
        manifest_json = await self._fetch_manifest(model_id)
        found = manifest_sha256(manifest_json)
        if found != expected_sha256:
            raise HashMismatch(
                f"the leader's manifest of {model_id} has SHA-256 {found}, the load was planned from "
                f"{expected_sha256}; the model was imported again meanwhile, load it anew",
                expected_sha256=expected_sha256,
                found_sha256=found,
            )
        return manifest_json, False

    async def _fetch_manifest(self, model_id: str) -> bytes:
        for failures in range(1, TRIES_WITHOUT_PROGRESS_MAX + 1):
            try:
                return await self._leader.manifest(model_id)
            except SwarmError as error:
                if error.why not in RETRYABLE or failures == TRIES_WITHOUT_PROGRESS_MAX:
                    raise
                await asyncio.sleep(redial_delay_s(failures, self._draw()))
        raise AssertionError("the last try returns or raises")


def _check_place(model_id: str, manifest: Manifest, of: ModelBytes | None) -> None:
    """A base is no adapter, and an adapter is one for a model of these layers. Raises BadRequest."""
    if of is None:
        if manifest.adapter is not None:
            raise BadRequest(
                f"{model_id} is an adapter of {manifest.adapter.base_model_id} and has no weights to build a stage of",
                field="weights_model_id",
            )
        return
    if manifest.adapter is None:
        raise BadRequest(f"{model_id} is a whole model, not an adapter of {of.model_id}", field="adapters")
    if (manifest.layer_count, manifest.hidden_size) != (of.manifest.layer_count, of.manifest.hidden_size):
        raise BadRequest(
            f"adapter {model_id} is for {manifest.layer_count} layers of {manifest.hidden_size}, {of.model_id} has "
            f"{of.manifest.layer_count} of {of.manifest.hidden_size}",
            field="adapters",
        )
