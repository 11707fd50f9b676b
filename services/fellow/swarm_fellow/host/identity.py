"""Who this machine is, and that only one fellow says so. Keeps a UUID and a lock in the state folder."""

import contextlib
import fcntl
import os
import uuid
from pathlib import Path
from types import TracebackType

from swarm_core.errors import Conflict, DiskFull
from swarm_core.private_file import write_private

IDENTITY_NAME = "identity"
LOCK_NAME = "fellow.lock"


class StateFolder:
    """The state folder, held for as long as the process lives; the kernel frees the lock when it dies.

    Raises Conflict when another fellow holds it, DiskFull when it cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = os.open(path / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise DiskFull(f"cannot write the state folder {path}: {error.strerror}", path=path) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(self._lock, 32).decode(errors="replace").strip() or "unknown"
            os.close(self._lock)
            raise Conflict(
                f"another fellow (process {holder}) uses the state folder {path}. Stop it, or give this one its own "
                "folder with --state-dir or SWARM_FELLOW_STATE_DIR.",
                path=path,
                pid=holder,
            ) from None
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)

    def identity(self) -> str:
        """The machine's stable UUID, made at first use."""
        file = self.path / IDENTITY_NAME
        with contextlib.suppress(FileNotFoundError, ValueError):
            return str(uuid.UUID(file.read_text().strip()))
        identity = str(uuid.uuid4())
        write_private(file, identity + "\n")
        return identity

    def close(self) -> None:
        """Let another fellow have the folder."""
        os.close(self._lock)

    def __enter__(self) -> "StateFolder":
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
