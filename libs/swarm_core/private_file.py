"""Small files that only their owner may read: secrets, keys, identities. Writes them; reads none."""

import os
from pathlib import Path

from swarm_core.errors import DiskFull


def write_private(file: Path, text: str) -> None:
    """Write a file of mode 0600, whole or not at all; it is on the disk when this returns. Raises DiskFull."""
    fresh = file.with_name(f"{file.name}.new")
    try:
        fresh.unlink(missing_ok=True)  # never written through: it may be another's, or a link
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        fresh.rename(file)
    except OSError as error:
        raise DiskFull(f"cannot write {file}: {error.strerror}", path=file) from error
