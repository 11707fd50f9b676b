"""Writes a servable from a checkpoint: places weights, hashes tensors, writes the manifest. It blocks: for a thread."""

import errno
import hashlib
import json
import os
import shutil
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

from swarm_core.errors import Cancelled, DiskFull, ServableCorrupt
from swarm_core.manifest import (
    CONFIG_NAME,
    MANIFEST_NAME,
    FileEntry,
    Manifest,
    TensorEntry,
    manifest_from_json,
    manifest_to_json,
)
from swarm_core.slices import LayerRange, slice_tensors

from swarm_leader.catalog.checkpoint import GENERATION_NAME, Checkpoint, read_named
from swarm_leader.catalog.config_json import drop_private, parse_json_object
from swarm_leader.catalog.files import open_plain
from swarm_leader.catalog.header import read_header

Report = Callable[[str, int, int], None]
_BLOCK_BYTES = 4 * 2**20
_SOURCE_CHARACTERS_MAX = 2000
_FULL = {errno.ENOSPC, errno.EDQUOT}


def assemble(
    checkpoint: Checkpoint,
    folder: Path,
    model_id: str,
    source: str,
    extra: dict[str, str],
    created_s: int,
    report: Report,
    stop: threading.Event,
) -> Manifest:
    """Make and fill `folder`; everything is on the disk when it returns. extra: what the manifest notes of the source.

    Raises DiskFull with the numbers, Cancelled soon after `stop` is set, ServableCorrupt when a layer is missing, or a
    file of the checkpoint is not what it was when it was looked at.
    """
    files = {weight.file: weight.path for weight in checkpoint.weights.values()}
    folder.mkdir()
    check_space(folder, files.values())
    (folder / "base").mkdir()
    _place_weights(files, folder / "base", report, stop)
    _check_placed(checkpoint, folder / "base")
    entries = _hash_tensors(checkpoint, folder, report, stop)
    config = checkpoint.config
    manifest = Manifest(
        model_id=model_id,
        model_type=config.model_type,
        layer_count=config.layer_count,
        hidden_size=config.hidden_size,
        vocabulary_size=config.vocabulary_size,
        kv_heads=config.kv_heads,
        head_dim=config.head_dim,
        tied_embeddings=config.tied_embeddings,
        context_tokens_max=config.context_tokens_max,
        tensors=entries,
        files=_write_small_files(checkpoint, folder),
        source="".join(letter if letter.isprintable() else "?" for letter in source[:_SOURCE_CHARACTERS_MAX]),
        created_s=created_s,
        extra={**extra, "attention_heads": config.attention_heads},
    )
    slice_tensors(manifest, LayerRange(0, config.layer_count, config.layer_count))
    checkpoint.check_unchanged()
    manifest_json = manifest_to_json(manifest)
    manifest_from_json(manifest_json)  # nothing is published that could not be read again
    _write(folder / MANIFEST_NAME, manifest_json)
    for place in (folder / "base", folder / "tokenizer", folder):
        sync(place)
    return manifest


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


def _place_weights(files: dict[str, Path], base: Path, report: Report, stop: threading.Event) -> None:
    """Hard links where the file system can, copies where not."""
    copies: list[tuple[Path, Path]] = []
    for file, path in files.items():
        try:
            os.link(path, base / file, follow_symlinks=False)
            sync(base / file)
        except OSError:  # another file system, or one that has no links
            copies.append((path, base / file))
    total = sum(path.stat().st_size for path, _ in copies)
    done = 0

    def on_bytes(count: int) -> None:
        nonlocal done
        done += count
        report("copy", done, total)

    for path, target in copies:
        target.unlink(missing_ok=True)
        copy_file(path, target, on_bytes, stop)


def _check_placed(checkpoint: Checkpoint, base: Path) -> None:
    """What was placed has the header that was looked at: the file may have been replaced in between."""
    spans: dict[str, set[object]] = {}
    for weight in checkpoint.weights.values():
        spans.setdefault(weight.file, set()).add(weight.span)
    for file, seen in spans.items():
        try:
            is_same = seen <= set(read_header(base / file).values())
        except (ServableCorrupt, OSError):
            is_same = False
        if not is_same:
            raise ServableCorrupt(f"{file} was replaced while it was imported; import it again")


def _hash_tensors(
    checkpoint: Checkpoint, folder: Path, report: Report, stop: threading.Event
) -> dict[str, TensorEntry]:
    total = sum(weight.span.size_bytes for weight in checkpoint.weights.values())
    done = 0
    entries: dict[str, TensorEntry] = {}
    report("hash", 0, total)
    for name, weight in checkpoint.weights.items():
        span, relative = weight.span, f"base/{weight.file}"
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


def _write_small_files(checkpoint: Checkpoint, folder: Path) -> dict[str, FileEntry]:
    """config.json and generation_config.json without private keys, the tokenizer as it is."""
    contents = {CONFIG_NAME: _document(checkpoint.config.document)}
    if checkpoint.generation is not None:
        generation = parse_json_object(read_named(checkpoint.generation, GENERATION_NAME), GENERATION_NAME)
        contents[GENERATION_NAME] = _document(drop_private(generation))
    for name, path in checkpoint.tokenizer.items():
        contents[f"tokenizer/{name}"] = read_named(path, name)
    (folder / "tokenizer").mkdir()
    for name, content in contents.items():
        _write(folder / name, content)
    return {name: FileEntry(len(content), hashlib.sha256(content).hexdigest()) for name, content in contents.items()}


def _document(document: dict[str, object]) -> bytes:
    return json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"


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
