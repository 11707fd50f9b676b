"""The servables under one folder: which can be served, which cannot and why. Implements domain.ports.Catalog.

Looks at sizes, never at contents; who fetches a tensor verifies its hash.
"""

import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import structlog
from swarm_core.errors import ModelNotFound, ServableCorrupt, SwarmError
from swarm_core.manifest import (
    CONFIG_NAME,
    MANIFEST_BYTES_MAX,
    MANIFEST_NAME,
    Manifest,
    manifest_from_json,
    manifest_sha256,
)
from swarm_core.servable_parts import ADAPTER_CONFIG_NAME

from swarm_leader.catalog.files import open_descriptor, read_small
from swarm_leader.catalog.names import model_id_of
from swarm_leader.catalog.sources.adapter_fit import why_unfit
from swarm_leader.catalog.sources.export_json import SHARDS_NAME

log = structlog.get_logger()


@dataclass(frozen=True)
class Servable:
    """One readable servable. stamp: what its manifest file looked like when it was read."""

    folder: Path
    manifest: Manifest
    manifest_json: bytes
    sha256: str
    stamp: tuple[int, int, int]


class DiskCatalog:
    """A view of `root`, taken by refresh() and swapped in whole: any thread may read while another refreshes."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._servables: dict[str, Servable] = {}
        self._broken: dict[str, str] = {}
        self._judged: dict[tuple[str, str], str] = {}  # (adapter, base), by their manifests -> why they do not fit

    def refresh(self) -> None:
        """Look at the disk again; a manifest is parsed only when its file changed, sizes are compared every time."""
        known = {servable.folder: servable for servable in self._servables.values()}
        servables: dict[str, Servable] = {}
        broken: dict[str, str] = {}
        for folder in self._folders(broken):
            name = folder.name
            try:
                name = model_id_of(folder.name)
                servables[name] = read_servable(folder, name, known.get(folder))
            except SwarmError as error:
                broken[name] = error.message
            except OSError as error:
                broken[name] = f"cannot be read: {error.strerror or error}"
            except Exception as error:  # one folder, whatever is in it, must not hide the others
                log.warning("servable cannot be read", folder=str(folder), exc_info=error)
                broken[name] = f"cannot be read: {type(error).__name__}: {error}"
        for name, reason in self._adapters_without_base(servables).items():
            broken[name] = reason
            del servables[name]
        self._servables, self._broken = dict(sorted(servables.items())), broken

    def _adapters_without_base(self, servables: Mapping[str, Servable]) -> dict[str, str]:
        """Adapters whose base is not there, or no longer the model they fit: with the reason."""
        reasons = {}
        judged: dict[tuple[str, str], str] = {}
        for name, servable in servables.items():
            adapter = servable.manifest.adapter
            base = servables.get(adapter.base_model_id) if adapter is not None else None
            if adapter is not None and base is None:
                reasons[name] = f"its base {adapter.base_model_id} is not in the catalog, or broken"
            elif base is not None:
                key = (servable.sha256, base.sha256)
                judged[key] = self._judged[key] if key in self._judged else why_unfit(servable.manifest, base.manifest)
                if judged[key]:
                    reasons[name] = judged[key]
        self._judged = judged
        return reasons

    def manifests(self) -> dict[str, Manifest]:
        """Servables that can be served, by model id, in the order of the ids."""
        return {model_id: servable.manifest for model_id, servable in self._servables.items()}

    def broken(self) -> dict[str, str]:
        """Servables that cannot, by model id (or folder name), with the reason."""
        return dict(self._broken)

    def get(self, model_id: str) -> Manifest:
        """One servable. Raises ModelNotFound (names what exists) or ServableCorrupt (with the reason)."""
        return self._get(model_id).manifest

    def manifest_json(self, model_id: str) -> bytes:
        """Its manifest as it lies on disk. Raises as get()."""
        return self._get(model_id).manifest_json

    def manifest_sha256(self, model_id: str) -> str:
        """The SHA-256 of manifest_json, hex. Raises as get()."""
        return self._get(model_id).sha256

    def folder(self, model_id: str) -> Path:
        """Its folder. Raises as get()."""
        return self._get(model_id).folder

    def _get(self, model_id: str) -> Servable:
        servables, broken = self._servables, self._broken
        if model_id in servables:
            return servables[model_id]
        if model_id in broken:
            raise ServableCorrupt(f"model {model_id} cannot be served: {broken[model_id]}", model_id=model_id)
        available = ", ".join(servables) or "none yet; import one with `swarm model-import`"
        raise ModelNotFound(
            f"there is no model {model_id[:200]!r}; available: {available}",
            model_id=model_id[:200],
            available=available,
        )

    def _folders(self, broken: dict[str, str]) -> Iterable[Path]:
        """Folders that stand for servables. Those with a dot are imports under way."""
        try:
            return sorted(path for path in self._root.iterdir() if not path.name.startswith(".") and path.is_dir())
        except FileNotFoundError:
            return []
        except OSError as error:
            broken[str(self._root)] = f"cannot be listed: {error.strerror or error}"
            return []


def find_file(folder: Path, name: str) -> Path:
    """The real path of a file of a servable.

    Raises ServableCorrupt when it is missing, no file, or a link that leads out of the folder.
    """
    try:
        path = (folder / name).resolve()
        is_file = stat.S_ISREG(path.stat().st_mode)
        is_inside = path.is_relative_to(folder.resolve())
    except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: links in a circle
        raise ServableCorrupt(f"{name} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if not is_file or not is_inside:
        raise ServableCorrupt(f"{name} is not a file of the servable")
    return path


def read_servable(folder: Path, model_id: str, known: Servable | None = None) -> Servable:
    """Read a servable, or reuse what is known of it, and compare its files with what it promises.

    Raises ServableCorrupt or OSError.
    """
    try:
        path = find_file(folder, MANIFEST_NAME)
    except ServableCorrupt as error:
        hint = "" if (folder / MANIFEST_NAME).exists() else "; a plain checkpoint must be imported first"
        raise ServableCorrupt(f"{error.message}{hint}") from error
    status = path.stat()
    stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
    servable = known if known is not None and known.stamp == stamp else _read(folder, path, stamp)
    if servable.manifest.model_id != model_id:
        raise ServableCorrupt(f"{MANIFEST_NAME} is of model {servable.manifest.model_id!r}, the folder of {model_id!r}")
    _check_files(folder, servable.manifest)
    return servable


def _read(folder: Path, path: Path, stamp: tuple[int, int, int]) -> Servable:
    raw = read_small(path, MANIFEST_BYTES_MAX)
    try:
        manifest = manifest_from_json(raw)
    except ServableCorrupt as error:
        if not (folder / SHARDS_NAME).is_dir():
            raise
        words = f"{error.message}; an export of training is made servable by `swarm model-import {folder}`"
        raise ServableCorrupt(words) from error
    return Servable(folder, manifest, raw, manifest_sha256(raw), stamp)


def _check_files(folder: Path, manifest: Manifest) -> None:
    """Every file is there with the size promised, every tensor inside its file, if the leader has the weights."""
    config = CONFIG_NAME if manifest.adapter is None else ADAPTER_CONFIG_NAME
    if config not in manifest.files:
        raise ServableCorrupt(f"{MANIFEST_NAME} lists no {config}")
    for name, entry in manifest.files.items():
        size_bytes = find_file(folder, name).stat().st_size
        if size_bytes != entry.size_bytes:
            raise ServableCorrupt(f"{name} has {size_bytes} bytes instead of {entry.size_bytes}")
    if manifest.origin is not None:
        return  # fellows fetch the weights from there
    sizes = {
        file: find_file(folder, file).stat().st_size for file in {entry.file for entry in manifest.tensors.values()}
    }
    for name, tensor in manifest.tensors.items():
        if tensor.begin + tensor.size_bytes > sizes[tensor.file]:
            raise ServableCorrupt(
                f"{tensor.file} has {sizes[tensor.file]} bytes; tensor {name} would end at "
                f"{tensor.begin + tensor.size_bytes}"
            )


def read_range(path: Path, offset: int, size_bytes: int) -> bytes:
    """Exactly these bytes of a file. Raises ServableCorrupt when it ends before, or has become something else."""
    descriptor = open_descriptor(path)
    try:
        parts = []
        while size_bytes:
            part = os.pread(descriptor, size_bytes, offset)
            if not part:
                raise ServableCorrupt(
                    f"{path.name} ends before byte {offset + size_bytes}; it changed since it was listed"
                )
            parts.append(part)
            offset, size_bytes = offset + len(part), size_bytes - len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)
    finally:
        os.close(descriptor)
