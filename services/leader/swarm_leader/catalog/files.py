"""Opens files whose names came from elsewhere: plain files only, never waiting for one, never more than allowed."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from swarm_core.errors import ServableCorrupt

# A path is looked at before it is opened and may be another thing by then: a link is not followed, and opening a pipe
# does not wait for its writer.
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def open_descriptor(path: Path) -> int:
    """A descriptor to read a plain file from. Raises ServableCorrupt when it is anything else, OSError."""
    descriptor = os.open(path, _FLAGS)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise ServableCorrupt(f"{path.name} is no plain file")


@contextmanager
def open_plain(path: Path) -> Iterator[BinaryIO]:
    """A plain file, open to read. Raises as open_descriptor."""
    with os.fdopen(open_descriptor(path), "rb") as file:
        yield file


def read_small(path: Path, bytes_max: int) -> bytes:
    """All of a small plain file. Raises ServableCorrupt when it is longer (also if it grows meanwhile), OSError."""
    with open_plain(path) as file:
        raw = file.read(bytes_max + 1)
    if len(raw) > bytes_max:
        raise ServableCorrupt(f"{path.name} has more than {bytes_max} bytes")
    return raw
