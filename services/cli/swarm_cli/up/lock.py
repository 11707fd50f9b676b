"""One `swarm up` per data folder. The kernel drops the lock with the supervisor, however it ends."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from swarm_core.errors import Conflict

LOCK_NAME = "up.lock"


@contextmanager
def hold_folder(folder: Path) -> Iterator[None]:
    """Own the folder while inside. Makes it when missing. Raises Conflict that names the owner."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK_NAME).open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            owner = file.read().strip() or "unknown"
            raise Conflict(
                f"another `swarm up` (process {owner}) uses {folder}; end it, or give --data-dir another folder",
                owner=owner,
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield
