"""The admin token that the leader makes itself, in a file for its own user alone. Implements ports.SecretFile."""

import contextlib
from pathlib import Path

from swarm_core.private_file import write_private

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
        write_private(self.path, secret + "\n")

    def remove(self) -> None:
        """The secret opens nothing any more."""
        with contextlib.suppress(OSError):
            self.path.unlink()
