"""The leader's folders: made where they are missing, and held by one leader at a time."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import structlog
from swarm_core.errors import BadRequest, Conflict

from swarm_leader.config import LeaderConfig

log = structlog.get_logger()


def open_folders(config: LeaderConfig) -> None:
    """Make the leader's folders where they are missing. Raises BadRequest naming the folder and its variable."""
    writable, readable = os.W_OK | os.X_OK, os.R_OK | os.X_OK  # models may lie on a share that is only read
    for folder, variable, needed, mode in (
        (config.data_dir, "SWARM_DATA_DIR", writable, 0o700),  # the authority's key and everybody's digests
        (config.models_root, "SWARM_SERVABLE_MODELS_ROOT", readable, 0o777),
    ):
        try:
            folder.mkdir(mode=mode, parents=True, exist_ok=True)
            why = "" if os.access(folder, needed) else "permission denied"
        except FileExistsError:
            why = "it is a file"
        except OSError as error:
            why = (error.strerror or str(error)).lower()
        if why:
            raise BadRequest(
                f"the folder {folder} cannot be used ({why}); set {variable} to one that can", field=variable
            )


@contextmanager
def address_told(data_dir: Path, address: str, has_own_roots: bool) -> Iterator[None]:
    """A file that says where this leader listens, while it does: `swarm` takes the admin token beside it only there.

    has_own_roots: its certificate leads to roots.pem in that folder; a second line says so.
    """
    file = data_dir / "leader.address"
    try:
        file.write_text(address + ("\nroots.pem\n" if has_own_roots else "\n"))
    except OSError as error:
        log.warning("cannot say where this leader listens", file=str(file), why=error.strerror)
    try:
        yield
    finally:
        file.unlink(missing_ok=True)


def lock_folder(data_dir: Path) -> IO[str]:
    """Keep a second leader off this folder until the file is closed. Raises Conflict."""
    data_dir.mkdir(parents=True, exist_ok=True)
    lock = (data_dir / "leader.lock").open("a")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        raise Conflict(f"another leader uses {data_dir}; stop it, or set SWARM_DATA_DIR to another folder") from None
    return lock
