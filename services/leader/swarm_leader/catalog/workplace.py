"""Where an import works: a folder beside the servables, renamed in at the end, cleaned up after a crash."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import structlog

from swarm_leader.catalog.assemble import sync

_PREFIX = ".import-"  # a dot hides it from the catalog

log = structlog.get_logger()


@contextmanager
def open_workplace(root: Path) -> Iterator[Path]:
    """An empty folder on the servables' own file system, gone when the block ends.

    Its lock tells clean_leftovers of another process that somebody works here; it ends with the process, however that
    ends.
    """
    root.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=root))
    lock = os.open(folder / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def publish(workplace: Path, servable: Path, target: Path) -> None:
    """Give a finished servable its place. One that stands there is set aside first and put back if that fails."""
    aside = workplace / "replaced" / target.name
    is_replacing = target.exists()
    if is_replacing:
        aside.parent.mkdir(exist_ok=True)
        target.rename(aside)
    try:
        servable.rename(target)
    except OSError:
        if is_replacing:
            aside.rename(target)
        raise
    sync(target.parent)


def clean_leftovers(root: Path) -> int:
    """Remove what killed imports left, and put back what one was about to replace. Returns how many there were."""
    cleaned = 0
    for folder in sorted(root.glob(f"{_PREFIX}*")):
        lock = os.open(folder / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue  # an import that runs in another process
        else:
            for aside in folder.glob("replaced/*"):
                if not (root / aside.name).exists():
                    aside.rename(root / aside.name)
            shutil.rmtree(folder, ignore_errors=True)
            log.info("removed what an interrupted import left", folder=folder.name)
            cleaned += 1
        finally:
            os.close(lock)
    return cleaned
