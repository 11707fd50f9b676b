"""The secret by which the leader knows this machine, kept in the state folder for its own user alone."""

import os
from pathlib import Path

import structlog
from swarm_core.private_file import write_private

log = structlog.get_logger()
NAME = "node-credential"
LENGTH_MAX = 512


class NodeCredential:
    """Read once at the start, replaced when the leader gives a new one."""

    def __init__(self, state_dir: Path) -> None:
        self._file = state_dir / NAME
        self._secret = _read(self._file)

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What goes with every call to the leader; empty before it gave one."""
        return (("authorization", f"Bearer {self._secret}"),) if self._secret else ()

    def keep(self, secret: str) -> None:
        """Present this from now on, also after a restart; "" keeps what there is. Raises DiskFull."""
        if secret and secret != self._secret:
            write_private(self._file, secret + "\n")
            self._secret = secret


def _read(file: Path) -> str:
    """The secret; "" when there is none. One that others may read is made this user's own again, and said."""
    try:
        with file.open() as stream:
            if os.fstat(stream.fileno()).st_mode & 0o077:
                log.warning("others could read this machine's credential; its file is made private", file=str(file))
                os.fchmod(stream.fileno(), 0o600)
            secret = stream.read(LENGTH_MAX).strip()
    except (OSError, UnicodeDecodeError):
        return ""
    # A damaged file must not put odd bytes into a header: without a credential the leader says what to do.
    return secret if secret.isascii() and secret.isprintable() else ""
