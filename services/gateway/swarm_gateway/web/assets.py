"""The page's static files: read once, named by their content, typed. Serves nothing by itself."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from types import MappingProxyType

VERSION_CHARS = 16  # 64 bits of SHA-256: files that differ never share a path
# Spelled out, for a browser refuses a module or a style sheet of another type, and machines' own tables differ.
_TYPES = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "md": "text/plain; charset=utf-8",
    "txt": "text/plain; charset=utf-8",
}


@dataclass(frozen=True)
class Asset:
    """One file. etag: without its quotes."""

    body: bytes
    content_type: str
    etag: str


@dataclass(frozen=True)
class Assets:
    """Every static file by its path below static/. version: changes when any of them does."""

    files: Mapping[str, Asset]
    version: str


def load_assets() -> Assets:
    """Read what the package carries. Raises KeyError for a file of a type that has none here."""
    folder = files("swarm_gateway.web") / "static"
    found = {path: _asset(path, body) for path, body in sorted(_walk(folder, ""))}
    whole = hashlib.sha256()
    for path, asset in found.items():
        whole.update(f"{path} {asset.etag}\n".encode())
    return Assets(MappingProxyType(found), whole.hexdigest()[:VERSION_CHARS])


def _asset(path: str, body: bytes) -> Asset:
    return Asset(body, _TYPES[path.rpartition(".")[2]], hashlib.sha256(body).hexdigest()[:VERSION_CHARS])


def _walk(folder: Traversable, prefix: str) -> Iterator[tuple[str, bytes]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _walk(entry, f"{prefix}{entry.name}/")
        else:
            yield f"{prefix}{entry.name}", entry.read_bytes()
