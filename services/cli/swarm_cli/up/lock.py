"""One `swarm up` per data folder. The kernel drops the lock with the supervisor, however it ends."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from swarm_core.errors import BadRequest, Conflict

LOCK_NAME = "up.lock"


@contextmanager
def hold_folder(folder: Path) -> Iterator[None]:
    """Own the folder while inside. Makes it when missing.

    Raises Conflict that names the owner, BadRequest when the folder cannot be made or written.
    """
    with _open_lock(folder) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            owner = file.read().strip() or "unknown"
            raise Conflict(
                f"another `swarm up` (process {owner}) uses {folder}: `swarm chat MODEL` talks to it and "
                "`swarm status` shows it; end it, or give --data-dir another folder",
                owner=owner,
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def _open_lock(folder: Path) -> TextIO:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return (folder / LOCK_NAME).open("a+")
    except OSError as error:
        raise BadRequest(
            f"the data folder {folder} cannot be made or written: {error.strerror}; choose another with --data-dir",
            field="data-dir",
        ) from None
