"""The admin token that the leader makes itself, in a file for its own user alone. Implements ports.SecretFile."""

import contextlib
import os
from pathlib import Path

from swarm_core.errors import DiskFull

NAME = "admin-token"
SECRET_MAX = 512


class DiskAdminFile:
    """One secret on one line. Written whole or not at all."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME

    def read(self) -> str:
        """The secret; "" when there is none that can be read."""
        try:
            return self.path.read_text()[:SECRET_MAX].strip()
        except (OSError, UnicodeDecodeError):
            return ""

    def write(self, secret: str) -> None:
        """Keep the secret, for this user's eyes only. Raises DiskFull."""
        fresh = self.path.with_name(f"{NAME}.new")
        try:
            fresh.unlink(missing_ok=True)  # never written through: it may be another's, or a link
            descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "w") as stream:
                stream.write(secret + "\n")
                stream.flush()
                os.fsync(stream.fileno())
            fresh.rename(self.path)
        except OSError as error:
            raise DiskFull(f"cannot write {self.path}: {error.strerror}", path=self.path) from error

    def remove(self) -> None:
        """The secret opens nothing any more."""
        with contextlib.suppress(OSError):
            self.path.unlink()
