"""Which paths of the leader's disk an import may name, and for whom. Looks at links on the way, opens nothing."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from swarm_core.errors import PermissionDenied
from swarm_rpc.forwarded import FORWARDED

_LOCAL_PEER = re.compile(
    r"unix:.*|ipv4:127\.\d+\.\d+\.\d+:\d+|ipv6:(\[|%5B)(::1|::ffff:127\.\d+\.\d+\.\d+)(\]|%5D):\d+"
)


@dataclass(frozen=True)
class ImportRoots:
    """The folders imports may read. Without any, callers on this machine may name every path, and others none.

    docs/decisions/0008-what-an-import-may-reach.md
    """

    folders: tuple[Path, ...] = ()

    def check(self, path: Path, is_local: bool) -> None:
        """Raise PermissionDenied when this path may not be read for this caller, whether it exists or not."""
        if not self.folders and is_local:
            return
        if not self.folders:
            raise PermissionDenied(
                "folders and files of the leader's machine are imported for callers on it; ask there, name a hub id "
                "(org/name), or set SWARM_IMPORT_ROOTS on the leader",
                field="source",
            )
        try:
            real = path.resolve()
        except (OSError, RuntimeError, ValueError):  # RuntimeError: links in a circle
            real = None
        if real is None or not any(real.is_relative_to(folder.resolve()) for folder in self.folders):
            roots = ", ".join(map(str, self.folders))
            raise PermissionDenied(
                f"the leader imports only what lies below {roots} (SWARM_IMPORT_ROOTS)", field="source"
            )


NO_ROOTS = ImportRoots()


def read_import_roots(text: str) -> ImportRoots:
    """SWARM_IMPORT_ROOTS: folders, a colon between two; empty names none."""
    return ImportRoots(tuple(Path(part).expanduser().absolute() for part in text.split(":") if part.strip()))


def is_local_call(peer: str, metadata: Iterable[Sequence[str | bytes]] | None) -> bool:
    """Whether a call comes from a program on this machine that asks for itself. peer: as gRPC writes it."""
    is_forwarded = any(key == FORWARDED for key, *_ in metadata or ())
    return not is_forwarded and _LOCAL_PEER.fullmatch(peer) is not None
