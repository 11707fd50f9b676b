"""Downloaded bytes on disk: found by hash, grown in parts, named only when right. Opens no connection."""

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from swarm_core.errors import DiskFull
from swarm_core.manifest import MANIFEST_BYTES_MAX, MANIFEST_NAME, FileEntry, TensorEntry, check_relative_path

MODELS = "models"  # below the root, a folder for each manifest
PART_SUFFIX = ".part"
DISK_MARGIN_BYTES = 64 * 2**20  # a disk filled to its last byte takes the machine's other programs down
_HASH_STEP_BYTES = 2**20
_CLAIM_TRIES = 8


@dataclass(frozen=True)
class Piece:
    """One tensor or small file: what to ask for, and where its bytes go, after `header`.

    name: as in the manifest. size_bytes, sha256: of the bytes asked for, the header not counted.
    """

    name: str
    is_tensor: bool
    size_bytes: int
    sha256: str
    path: Path
    header: bytes = b""

    def is_complete(self) -> bool:
        """Whether it is there. A small file is hashed each time; a tensor's size alone is compared (see proven.py)."""
        with contextlib.suppress(FileNotFoundError):
            if self.path.stat().st_size != len(self.header) + self.size_bytes:
                return False
            return self.is_tensor or hashlib.sha256(self.path.read_bytes()).hexdigest() == self.sha256
        return False

    @property
    def part_path(self) -> Path:
        """Where its bytes grow until they are whole."""
        return self.path.with_name(self.path.name + PART_SUFFIX)


class ModelCache:
    """Where everything lies under one root, which several fellows of a machine may share."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def model_dir(self, manifest_sha256: str) -> Path:
        """The folder of a model's small files."""
        return self.root / MODELS / manifest_sha256

    def tensor(self, name: str, entry: TensorEntry) -> Piece:
        """A tensor as a safetensors file of its own, under the key "tensor".

        The file is named by hash, type and shape: equal bytes of another shape are another file.
        """
        shape = "x".join(map(str, entry.shape)) or "scalar"
        path = self.root / "tensors" / f"{entry.sha256}-{entry.dtype}-{shape}.safetensors"
        return Piece(name, True, entry.size_bytes, entry.sha256, path, safetensors_header(entry))

    def file(self, manifest_sha256: str, name: str, entry: FileEntry) -> Piece:
        """A small file of a model."""
        path = self.model_dir(manifest_sha256) / check_relative_path(name)
        return Piece(name, False, entry.size_bytes, entry.sha256, path)

    def read_manifest(self, manifest_sha256: str) -> bytes | None:
        """The manifest with this hash, when it is here and whole."""
        with (
            contextlib.suppress(FileNotFoundError),
            (self.model_dir(manifest_sha256) / MANIFEST_NAME).open("rb") as file,
        ):
            manifest_json = file.read(MANIFEST_BYTES_MAX + 1)
            if hashlib.sha256(manifest_json).hexdigest() == manifest_sha256:
                return manifest_json
        return None

    def write_manifest(self, manifest_sha256: str, manifest_json: bytes) -> None:
        """Keep a manifest. Raises DiskFull."""
        folder = self.model_dir(manifest_sha256)
        with disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            fresh = folder / f"{MANIFEST_NAME}.{os.getpid()}-{threading.get_ident()}.new"
            try:
                fresh.write_bytes(manifest_json)
                fresh.rename(folder / MANIFEST_NAME)
            finally:
                fresh.unlink(missing_ok=True)  # a disk that was full keeps no half of it


class Part:
    """A piece that grows, claimed by an exclusive lock on its file: two loads, or two fellows, never write the same.

    Blocking; meant for a thread. Every write raises DiskFull when the disk does not take it.
    release() may come from another thread: it waits for a write that runs, and no write follows it.
    """

    def __init__(self, piece: Piece, descriptor: int) -> None:
        self.piece = piece
        self.is_finished = False
        self.mismatches = 0
        self.found_sha256 = ""  # of the last bytes that were wrong
        self._descriptor = descriptor
        self._writing = threading.Lock()
        self._hash = hashlib.sha256()
        try:
            with disk_errors(piece.path):
                self.received_bytes = self._take_over()
        except BaseException:
            self.release()
            raise

    @classmethod
    def claim(cls, piece: Piece) -> "Part | None":
        """Claim a piece; None while another holds it, or when it has become complete meanwhile. Raises DiskFull."""
        with disk_errors(piece.path):
            piece.path.parent.mkdir(parents=True, exist_ok=True)
            for _ in range(_CLAIM_TRIES):
                descriptor = os.open(piece.part_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError as error:
                    os.close(descriptor)
                    if isinstance(error, BlockingIOError):
                        return None
                    raise
                if not _is_still(descriptor, piece.part_path):
                    os.close(descriptor)  # its last holder finished and renamed it between open and lock
                    continue
                if piece.is_complete():
                    piece.part_path.unlink(missing_ok=True)
                    os.close(descriptor)
                    return None
                return cls(piece, descriptor)
        return None

    @property
    def is_full(self) -> bool:
        """All bytes are here, right or wrong."""
        return self.received_bytes == self.piece.size_bytes

    def append(self, chunk: bytes) -> None:
        """Add the next bytes; the caller has checked that they are the next and fit."""
        assert self.received_bytes + len(chunk) <= self.piece.size_bytes
        with self._writing, disk_errors(self.piece.path):
            view = memoryview(chunk)
            while view:
                view = view[os.write(self._descriptor, view) :]
        self._hash.update(chunk)
        self.received_bytes += len(chunk)

    def finish(self) -> bool:
        """Verify and give the final name; False when the bytes are wrong, which are then dropped to start again."""
        assert self.is_full
        found = self._hash.hexdigest()
        if found == self.piece.sha256:
            with self._writing, disk_errors(self.piece.path):
                os.fsync(self._descriptor)  # the name vouches for the bytes, also after a power cut
                self.piece.part_path.rename(self.piece.path)
            self.is_finished = True
            return True
        self.mismatches += 1
        self.found_sha256 = found
        with self._writing, disk_errors(self.piece.path):
            os.ftruncate(self._descriptor, 0)
            self.received_bytes = self._take_over()
        return False

    def discard(self) -> None:
        """Leave nothing of it on disk, when nobody gives the right bytes. Only release() may follow."""
        with self._writing:
            self.piece.part_path.unlink(missing_ok=True)

    def release(self) -> None:
        """Give the claim back; what is here stays for the next try. Safe to call again."""
        with self._writing:
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1

    def _take_over(self) -> int:
        """Hash what an earlier try left and stand at its end; anything that cannot be a beginning is dropped."""
        header = self.piece.header
        size_bytes = os.fstat(self._descriptor).st_size
        self._hash = hashlib.sha256()
        found_header = os.pread(self._descriptor, len(header), 0)
        if found_header != header or size_bytes > len(header) + self.piece.size_bytes:
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, header, 0)
            size_bytes = len(header)
        os.lseek(self._descriptor, len(header), os.SEEK_SET)
        while step := os.read(self._descriptor, _HASH_STEP_BYTES):
            self._hash.update(step)
        return size_bytes - len(header)


def safetensors_header(entry: TensorEntry) -> bytes:
    """The head of a safetensors file that holds this tensor alone, as "tensor": length, JSON, padded to 8 bytes."""
    document = {
        "tensor": {"dtype": entry.dtype, "shape": list(entry.shape), "data_offsets": [0, entry.size_bytes]},
    }
    head = json.dumps(document, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    return len(head).to_bytes(8, "little") + head


@contextlib.contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Word what a disk refuses. Raises DiskFull with what is free."""
    try:
        yield
    except OSError as error:
        nearest = next(folder for folder in (path, *path.parents) if folder.is_dir())
        free_bytes = shutil.disk_usage(nearest).free
        fix = "make room" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "make it writable"
        raise DiskFull(
            f"cannot write {path}: {error.strerror} ({free_bytes} bytes free); {fix}, or set "
            "SWARM_FELLOW_MODEL_CACHE to another disk",
            path=path,
            free_bytes=free_bytes,
        ) from error


def _is_still(descriptor: int, path: Path) -> bool:
    """Whether the open file is the one the path names now."""
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), path.stat())
    return False
