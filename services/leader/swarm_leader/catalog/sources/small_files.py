"""The files of a checkpoint's folder: which small ones are read, where names and links lead. Writes nothing."""

import hashlib
import json
import stat
from collections.abc import Collection
from itertools import islice
from pathlib import Path

from swarm_core.errors import BadRequest
from swarm_core.manifest import CONFIG_BYTES_MAX, CONFIG_NAME, MANIFEST_NAME, small_file_bytes_max
from swarm_core.servable_parts import ADAPTER_CONFIG_NAME

from swarm_leader.catalog.files import read_small
from swarm_leader.catalog.sources.config_json import check_no_own_code, parse_json_object

INDEX_NAME = "model.safetensors.index.json"
GENERATION_NAME = "generation_config.json"
TOKENIZER_NAMES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
)
SMALL_NAMES = (CONFIG_NAME, GENERATION_NAME, INDEX_NAME, *TOKENIZER_NAMES)
_VOCABULARIES = ("tokenizer.json", "tokenizer.model", "vocab.json")  # one of them makes a tokenizer
_SHORT_NAMES = {CONFIG_NAME, GENERATION_NAME, ADAPTER_CONFIG_NAME, MANIFEST_NAME}
_NAMES_MAX = 10_000  # in a checkpoint's folder


def small_files(folder: Path) -> dict[str, Path]:
    """The small files a checkpoint's folder has: name -> real path. Raises BadRequest for one that is no plain file."""
    return {name: path for name in SMALL_NAMES if (path := small_file(folder, name)) is not None}


def check_tokenizer(small: dict[str, Path], folder: Path) -> dict[str, Path]:
    """The tokenizer's files among these. Raises BadRequest when there is none, or it brings its own code."""
    tokenizer = {name: small[name] for name in TOKENIZER_NAMES if name in small}
    if not any(name in tokenizer for name in _VOCABULARIES):
        raise BadRequest(f"{folder} has no tokenizer ({', '.join(_VOCABULARIES)})", field="source")
    if "tokenizer_config.json" in tokenizer:
        raw = read_named(tokenizer["tokenizer_config.json"], "tokenizer_config.json")
        check_no_own_code(parse_json_object(raw, "tokenizer_config.json"), "tokenizer_config.json")
    return tokenizer


def fingerprint_files(paths: Collection[Path]) -> str:
    """Names, sizes and times of files, hashed: equal when nothing was touched."""
    facts = []
    for path in sorted(paths):
        status = path.stat()
        facts.append([str(path), status.st_size, status.st_mtime_ns])
    return hashlib.sha256(json.dumps(facts).encode("utf-8", "surrogateescape")).hexdigest()


def read_named(path: Path, name: str) -> bytes:
    """A small file of a checkpoint, whole. name: what it is in the checkpoint. Raises ServableCorrupt, OSError."""
    return read_small(path, _bytes_max(name))


def _bytes_max(name: str) -> int:
    return CONFIG_BYTES_MAX if name in _SHORT_NAMES else small_file_bytes_max(name)


def names_in(folder: Path) -> set[str]:
    """The names in a folder. Raises BadRequest when there are too many for a checkpoint."""
    names = {path.name for path in islice(folder.iterdir(), _NAMES_MAX + 1)}
    if len(names) > _NAMES_MAX:
        raise BadRequest(f"{folder} has more than {_NAMES_MAX} files; it is not a checkpoint", field="source")
    return names


def small_file(folder: Path, name: str) -> Path | None:
    """The real path of a small file; None when there is none. Raises BadRequest for a large one, or no plain file."""
    path = real_file(folder, name)
    bytes_max = _bytes_max(name)
    if path is not None and path.stat().st_size > bytes_max:
        raise BadRequest(f"{name} has {path.stat().st_size} bytes, more than {bytes_max}", field="source")
    return path


def real_file(folder: Path, name: str) -> Path | None:
    """The real path of a file; None when there is none.

    Links may lead to places inside the folder or to the blobs of the Hugging Face cache it lies in; a checkpoint that
    links to anything else could publish that to every fellow.
    """
    try:
        path = (folder / name).resolve(strict=True)
    except FileNotFoundError:
        return None
    except (OSError, RuntimeError) as error:
        raise BadRequest(f"{name} cannot be read: {error}", field="source") from error
    real = folder.resolve()
    allowed = (real, real.parent.parent / "blobs") if real.parent.name == "snapshots" else (real,)
    if not any(path.is_relative_to(place) for place in allowed) or not stat.S_ISREG(path.stat().st_mode):
        raise BadRequest(f"{name} is a link that leads out of {folder}, or no file", field="source")
    return path
