"""Writes a servable from its source: places weights, hashes tensors, writes the manifest. It blocks: for a thread."""

import errno
import hashlib
import os
import shutil
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from swarm_core.errors import Cancelled, DiskFull, ServableCorrupt
from swarm_core.manifest import (
    MANIFEST_NAME,
    FileEntry,
    Manifest,
    TensorEntry,
    manifest_from_json,
    manifest_to_json,
)

from swarm_leader.catalog.files import open_plain
from swarm_leader.catalog.sources.header import read_header
from swarm_leader.catalog.sources.weight_files import Weight

Report = Callable[[str, int, int], None]
_BLOCK_BYTES = 4 * 2**20
_SOURCE_CHARACTERS_MAX = 2000
_FULL = {errno.ENOSPC, errno.EDQUOT}


class Source(Protocol):
    """What a servable is made of: catalog.checkpoint.Checkpoint, catalog.adapter.Adapter."""

    @property
    def weights(self) -> Mapping[str, Weight]:
        """Tensor name as it is served -> where it lies."""

    def small_contents(self) -> dict[str, bytes]:
        """Small files by the name they are published under."""

    def manifest_of(
        self,
        model_id: str,
        tensors: Mapping[str, TensorEntry],
        files: Mapping[str, FileEntry],
        extra: Mapping[str, Any],
        **facts: Any,
    ) -> Manifest:
        """The manifest. facts: further fields of it. Raises ServableCorrupt when a part is missing."""

    def check_unchanged(self) -> None:
        """Raises ServableCorrupt when a file was changed since it was looked at."""


def assemble(
    source: Source,
    folder: Path,
    model_id: str,
    named: str,
    extra: dict[str, str],
    created_s: int,
    report: Report,
    stop: threading.Event,
) -> Manifest:
    """Make and fill `folder`; everything is on the disk when it returns.

    named: how people named the source. extra: what the manifest notes of it.
    Raises DiskFull with the numbers, Cancelled soon after `stop` is set, ServableCorrupt when a layer is missing, or a
    file of the source is not what it was when it was looked at.
    """
    files = {placed(weight.file): weight.path for weight in source.weights.values()}
    folder.mkdir()
    check_space(folder, files.values())
    for place in {folder / name for file in files for name in Path(file).parents}:
        place.mkdir(parents=True, exist_ok=True)
    _place_weights(files, folder, report, stop)
    _check_placed(source, folder)
    tensors = _hash_tensors(source, folder, report, stop)
    return write_servable(source, folder, model_id, tensors, extra, named, created_s)


def placed(file: str) -> str:
    """Where a weight file goes in the servable: as it lay in an export's shards, else into base/."""
    return file if "/" in file else f"base/{file}"


def write_servable(
    source: Source,
    folder: Path,
    model_id: str,
    tensors: Mapping[str, TensorEntry],
    extra: Mapping[str, Any],
    named: str,
    created_s: int,
    **facts: Any,
) -> Manifest:
    """Write small files and manifest into `folder`, beside the weights, if any. Raises as assemble."""
    contents = source.small_contents()
    for name, content in contents.items():
        (folder / name).parent.mkdir(exist_ok=True)
        _write(folder / name, content)
    files = {name: FileEntry(len(content), hashlib.sha256(content).hexdigest()) for name, content in contents.items()}
    manifest = source.manifest_of(model_id, tensors, files, extra, source=_said(named), created_s=created_s, **facts)
    source.check_unchanged()
    manifest_json = manifest_to_json(manifest)
    manifest_from_json(manifest_json)  # nothing is published that could not be read again
    _write(folder / MANIFEST_NAME, manifest_json)
    for place in (*(path for path in folder.rglob("*") if path.is_dir()), folder):
        sync(place)
    return manifest


def _said(named: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in named[:_SOURCE_CHARACTERS_MAX])


def check_space(folder: Path, sources: Iterable[Path]) -> None:
    """Raise DiskFull when the files that must be copied do not fit; those on the same file system are linked."""
    device = folder.stat().st_dev
    sizes = [path.stat() for path in sources]
    needed_bytes = sum(status.st_size for status in sizes if status.st_dev != device)
    free_bytes = shutil.disk_usage(folder).free
    if needed_bytes > free_bytes:
        raise disk_full(folder, needed_bytes, free_bytes)


def disk_full(folder: Path, needed_bytes: int, free_bytes: int) -> DiskFull:
    """The error with both numbers."""
    return DiskFull(
        f"{folder} needs {needed_bytes} bytes and has {free_bytes} free; make room or set "
        "SWARM_SERVABLE_MODELS_ROOT to a larger disk",
        needed_bytes=needed_bytes,
        free_bytes=free_bytes,
    )


def copy_file(source: Path, target: Path, on_bytes: Callable[[int], None], stop: threading.Event) -> None:
    """Copy and fsync. Raises DiskFull with the numbers when there is no room."""
    copied_bytes = 0
    try:
        with open_plain(source) as reader, target.open("wb") as writer:
            while block := reader.read(_BLOCK_BYTES):
                _check_stop(stop)
                writer.write(block)
                copied_bytes += len(block)
                on_bytes(len(block))
            writer.flush()
            os.fsync(writer.fileno())
    except OSError as error:
        if error.errno not in _FULL:
            raise
        free_bytes = shutil.disk_usage(target.parent).free
        raise disk_full(target.parent, source.stat().st_size - copied_bytes, free_bytes) from error


def sync(path: Path) -> None:
    """Make a file, or the names in a folder, survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _place_weights(files: dict[str, Path], folder: Path, report: Report, stop: threading.Event) -> None:
    """Hard links where the file system can, copies where not."""
    copies: list[tuple[Path, Path]] = []
    for file, path in files.items():
        try:
            os.link(path, folder / file, follow_symlinks=False)
            sync(folder / file)
        except OSError:  # another file system, or one that has no links
            copies.append((path, folder / file))
    total = sum(path.stat().st_size for path, _ in copies)
    done = 0

    def on_bytes(count: int) -> None:
        nonlocal done
        done += count
        report("copy", done, total)

    for path, target in copies:
        target.unlink(missing_ok=True)
        copy_file(path, target, on_bytes, stop)


def _check_placed(source: Source, folder: Path) -> None:
    """What was placed has the header that was looked at: the file may have been replaced in between."""
    spans: dict[str, set[object]] = {}
    for weight in source.weights.values():
        spans.setdefault(weight.file, set()).add(weight.span)
    for file, seen in spans.items():
        try:
            is_same = seen <= set(read_header(folder / placed(file)).values())
        except (ServableCorrupt, OSError):
            is_same = False
        if not is_same:
            raise ServableCorrupt(f"{file} was replaced while it was imported; import it again")


def _hash_tensors(source: Source, folder: Path, report: Report, stop: threading.Event) -> dict[str, TensorEntry]:
    total = sum(weight.span.size_bytes for weight in source.weights.values())
    done = 0
    entries: dict[str, TensorEntry] = {}
    report("hash", 0, total)
    for name, weight in source.weights.items():
        span, relative = weight.span, placed(weight.file)
        digest = hashlib.sha256()
        with (folder / relative).open("rb") as file:
            file.seek(span.begin)
            left_bytes = span.size_bytes
            while left_bytes:
                _check_stop(stop)
                block = file.read(min(_BLOCK_BYTES, left_bytes))
                if not block:
                    raise OSError(errno.EIO, f"{weight.file} became shorter while it was imported")
                digest.update(block)
                left_bytes -= len(block)
                done += len(block)
                report("hash", done, total)
        entries[name] = TensorEntry(relative, span.begin, span.size_bytes, span.dtype, span.shape, digest.hexdigest())
    return entries


def _write(path: Path, content: bytes) -> None:
    try:
        with path.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        if error.errno not in _FULL:
            raise
        raise disk_full(path.parent, len(content), shutil.disk_usage(path.parent).free) from error


def _check_stop(stop: threading.Event) -> None:
    if stop.is_set():
        raise Cancelled("the import was cancelled")
