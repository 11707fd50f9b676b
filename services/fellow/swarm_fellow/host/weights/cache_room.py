"""Room for a load in the model cache: which files are in use, and what is dropped for new ones. Fetches nothing.

A use is a file of names, locked for as long as a stage may need them; the kernel ends it with its process, so several
fellows may share a cache and none drops what another one needs. What is kept and dropped whole is a tensor's file, or
the folder of a model's small files: a leader that offers ever new models must not fill the disk with those either.
"""

import contextlib
import fcntl
import os
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import structlog
from swarm_core.errors import DiskFull

from swarm_fellow.domain.cache_room import CachedFile, bytes_to_drop, choose_dropped
from swarm_fellow.host.weights.cache import DISK_MARGIN_BYTES, MODELS, PART_SUFFIX, Piece, disk_errors

log = structlog.get_logger()

USE_SUFFIX = ".use"


def disk_free_bytes(path: Path) -> int:
    """What the disk of a folder has free for us."""
    return shutil.disk_usage(path).free


class CacheUse:
    """Files of the cache that must stay, until release()."""

    def __init__(self, path: Path, names: Iterable[str]) -> None:
        self._path = path
        self._ending = threading.Lock()
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.write_text("\n".join(names))
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """The files may be dropped from now on. Safe to call again, from any thread."""
        with self._ending:
            if self._descriptor >= 0:
                self._path.unlink(missing_ok=True)
                os.close(self._descriptor)
                self._descriptor = -1


class CacheRoom:
    """Keeps the cache within its disk and its limit. Blocking; meant for a thread.

    bytes_max: what all files may take together, 0 is no limit; files in use stay, whatever the limit.
    free_bytes: what the disk of a folder has free.
    """

    def __init__(self, root: Path, bytes_max: int, free_bytes: Callable[[Path], int] = disk_free_bytes) -> None:
        self._root = root
        self._tensors = root / "tensors"
        self._uses = root / "uses"
        self._bytes_max = bytes_max
        self._free_bytes = free_bytes

    def reserve(self, pieces: Sequence[Piece]) -> CacheUse:
        """Mark these as in use, and drop the least recently used others until the missing ones fit.

        Raises DiskFull with the numbers, before the first byte, and drops nothing when even that is not enough.
        """
        with disk_errors(self._uses):
            self._uses.mkdir(parents=True, exist_ok=True)
            with self._alone():
                self._make_room(pieces)
                names = sorted({self._name_of(piece) for piece in pieces})
                for name in names:
                    with contextlib.suppress(FileNotFoundError):
                        _mark_used(self._path_of(name))
                return CacheUse(self._uses / f"{uuid.uuid4().hex}{USE_SUFFIX}", names)

    def empty(self) -> int:
        """Drop everything that nobody uses. Returns its bytes. Raises DiskFull when the cache cannot be written."""
        with disk_errors(self._uses):
            self._uses.mkdir(parents=True, exist_ok=True)
            with self._alone():
                used = self._names_in_use()
                idle = [file for file in self._files() if file.name.removesuffix(PART_SUFFIX) not in used]
                self._drop([file.name for file in idle])
        return sum(file.size_bytes for file in idle)

    def held_bytes(self) -> int:
        """What files and parts take on disk now, whoever fetched them."""
        return sum(file.size_bytes for file in self._files())

    def _make_room(self, pieces: Sequence[Piece]) -> None:
        incoming_bytes = sum(
            len(piece.header) + piece.size_bytes - size_of(piece.part_path)
            for piece in pieces
            if not piece.is_complete()
        )
        files, free_bytes = self._files(), self._free_bytes(self._root)
        needed = self._names_in_use() | {self._name_of(piece) for piece in pieces}
        droppable = [file for file in files if file.name.removesuffix(PART_SUFFIX) not in needed]
        droppable_bytes = sum(file.size_bytes for file in droppable)
        if incoming_bytes > 0 and incoming_bytes + DISK_MARGIN_BYTES > free_bytes + droppable_bytes:
            raise DiskFull(
                f"{incoming_bytes} bytes are still to be fetched and {self._root} has {free_bytes} free "
                f"({DISK_MARGIN_BYTES} are kept free) and {droppable_bytes} in cached files that no stage needs. Make "
                "room, or set SWARM_FELLOW_MODEL_CACHE to another disk.",
                needed_bytes=incoming_bytes,
                free_bytes=free_bytes,
                droppable_bytes=droppable_bytes,
                path=self._root,
            )
        cache_bytes = sum(file.size_bytes for file in files)
        short_bytes = bytes_to_drop(incoming_bytes, free_bytes, DISK_MARGIN_BYTES, cache_bytes, self._bytes_max)
        self._drop(choose_dropped(droppable, short_bytes))

    def _files(self) -> list[CachedFile]:
        """Every tensor file and part, and every folder of a model's small files."""
        files: list[CachedFile] = []
        with contextlib.suppress(FileNotFoundError), os.scandir(self._tensors) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):  # another fellow finished or dropped it
                    status = entry.stat()
                    used_s = max(status.st_atime, status.st_mtime)
                    files.append(CachedFile(entry.name, status.st_size, used_s))
        with contextlib.suppress(FileNotFoundError), os.scandir(self._root / MODELS) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    size_bytes = sum(size_of(path) for path in Path(entry.path).rglob("*") if path.is_file())
                    files.append(CachedFile(f"{MODELS}/{entry.name}", size_bytes, entry.stat().st_mtime))
        return files

    def _name_of(self, piece: Piece) -> str:
        """What a piece is kept and dropped as: its tensor's file, or its model's folder."""
        if piece.is_tensor:
            return piece.path.name
        return f"{MODELS}/{piece.path.relative_to(self._root / MODELS).parts[0]}"

    def _path_of(self, name: str) -> Path:
        return self._root / name if name.startswith(f"{MODELS}/") else self._tensors / name

    def _drop(self, names: Sequence[str]) -> None:
        for name in names:
            path = self._path_of(name)
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
        if names:
            log.info(
                "dropped the least recently used files of the model cache", files=len(names), cache=str(self._root)
            )

    def _names_in_use(self) -> set[str]:
        """Names that any living fellow uses; what a dead one left behind is removed."""
        names: set[str] = set()
        for path in self._uses.glob(f"*{USE_SUFFIX}"):
            with contextlib.suppress(FileNotFoundError), path.open("r+") as use:
                try:
                    fcntl.flock(use, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    names |= set(use.read().split("\n"))
                else:
                    path.unlink(missing_ok=True)
        return names

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """One reservation at a time on this cache; its holder only looks at, drops and marks local files."""
        with (self._uses / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _mark_used(path: Path) -> None:
    """Used now, also where a disk keeps no access times. A tensor's time of writing stays: another one is another
    content (proven.py). A folder's is its last use, as looking into it counts as access.
    """
    written_ns = time.time_ns() if path.is_dir() else path.stat().st_mtime_ns
    os.utime(path, ns=(time.time_ns(), written_ns))


def size_of(path: Path) -> int:
    """Bytes of a file, 0 when there is none."""
    with contextlib.suppress(FileNotFoundError):
        return path.stat().st_size
    return 0
