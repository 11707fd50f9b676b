"""servable.json: what a model is made of, tensor by tensor. Parses and writes; touches no file."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import PurePosixPath
from typing import Any

from swarm_core.errors import ServableCorrupt

FORMAT = 1
MANIFEST_NAME = "servable.json"
DTYPE_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}
_SHA256 = re.compile(r"^[0-9a-f]{64}$")


@dataclass(frozen=True)
class TensorEntry:
    """One tensor: where its raw bytes lie and what they hash to.

    file: safetensors file, relative to the servable. begin: absolute position of its first byte in that file.
    """

    file: str
    begin: int
    size_bytes: int
    dtype: str
    shape: tuple[int, ...]
    sha256: str

    @property
    def element_count(self) -> int:
        """Elements in all."""
        count = 1
        for extent in self.shape:
            count *= extent
        return count


@dataclass(frozen=True)
class FileEntry:
    """One small file (config, tokenizer): its size and hash."""

    size_bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """A model of the catalog. Tensor names are those of the checkpoint; small files are relative to the servable."""

    model_id: str
    model_type: str
    layer_count: int
    hidden_size: int
    vocabulary_size: int
    kv_heads: int
    head_dim: int
    tied_embeddings: bool
    context_tokens_max: int
    tensors: Mapping[str, TensorEntry]
    files: Mapping[str, FileEntry]
    source: str = ""
    created_s: int = 0
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def weight_bytes(self) -> int:
        """Bytes of all tensors as stored."""
        return sum(entry.size_bytes for entry in self.tensors.values())

    @property
    def parameter_count(self) -> int:
        """Elements of all tensors as stored."""
        return sum(entry.element_count for entry in self.tensors.values())


def manifest_to_json(manifest: Manifest) -> bytes:
    """The one byte form: sorted keys, no spaces, so that its SHA-256 names it."""
    document = {"format": FORMAT, **asdict(manifest)}
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def manifest_sha256(manifest_json: bytes) -> str:
    """The manifest's name, hex."""
    return hashlib.sha256(manifest_json).hexdigest()


def manifest_from_json(manifest_json: bytes) -> Manifest:
    """Read a manifest, trusting nothing in it.

    Raises ServableCorrupt when a field is missing or of the wrong kind, a path leaves the servable, a size does not
    match its shape, or the model is empty.
    """
    try:
        document = json.loads(manifest_json)
        if document.pop("format") != FORMAT:
            raise ServableCorrupt(f"{MANIFEST_NAME} is not of format {FORMAT}")
        tensors = {name: _tensor(name, entry) for name, entry in document.pop("tensors").items()}
        files = {name: _file(name, entry) for name, entry in document.pop("files").items()}
        numbers = ("layer_count", "hidden_size", "vocabulary_size", "kv_heads", "head_dim", "context_tokens_max")
        manifest = Manifest(
            tensors=tensors,
            files=files,
            model_id=_text(document, "model_id"),
            model_type=_text(document, "model_type"),
            tied_embeddings=bool(document["tied_embeddings"]),
            source=str(document.get("source", "")),
            created_s=int(document.get("created_s", 0)),
            extra=dict(document.get("extra") or {}),
            **{name: _count(document, name) for name in numbers},
        )
    except ServableCorrupt:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise ServableCorrupt(f"{MANIFEST_NAME} cannot be read: {type(error).__name__}: {error}") from error
    if not manifest.layer_count or not tensors:
        raise ServableCorrupt(f"{MANIFEST_NAME} describes no layers or no tensors")
    return manifest


def check_relative_path(path: str) -> str:
    """A path that stays inside its folder, as given. Raises ServableCorrupt."""
    pure = PurePosixPath(path)
    if not path or pure.is_absolute() or ".." in pure.parts or "\\" in path or "\0" in path or str(pure) != path:
        raise ServableCorrupt(f"path {path!r} leaves the servable")
    return path


def _tensor(name: str, entry: Any) -> TensorEntry:
    shape = tuple(int(extent) for extent in entry["shape"])
    tensor = TensorEntry(
        file=check_relative_path(entry["file"]),
        begin=_count(entry, "begin"),
        size_bytes=_count(entry, "size_bytes"),
        dtype=_text(entry, "dtype"),
        shape=shape,
        sha256=_sha256(entry),
    )
    if tensor.dtype not in DTYPE_BYTES:
        raise ServableCorrupt(f"tensor {name} has dtype {tensor.dtype!r}, which is not served")
    expected_bytes = tensor.element_count * DTYPE_BYTES[tensor.dtype]
    if any(extent < 0 for extent in shape) or expected_bytes != tensor.size_bytes:
        raise ServableCorrupt(f"tensor {name}: shape {list(shape)} of {tensor.dtype} is not {tensor.size_bytes} bytes")
    return tensor


def _file(name: str, entry: Any) -> FileEntry:
    check_relative_path(name)
    return FileEntry(size_bytes=_count(entry, "size_bytes"), sha256=_sha256(entry))


def _count(document: Any, name: str) -> int:
    number = document[name]
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < 2**63:
        raise ServableCorrupt(f"{MANIFEST_NAME}: {name} is {number!r}, not a count")
    return number


def _text(document: Any, name: str) -> str:
    text = document[name]
    if not isinstance(text, str) or not text:
        raise ServableCorrupt(f"{MANIFEST_NAME}: {name} is {text!r}, not a text")
    return text


def _sha256(entry: Any) -> str:
    digest = entry["sha256"]
    if not isinstance(digest, str) or not _SHA256.match(digest):
        raise ServableCorrupt(f"{MANIFEST_NAME}: {digest!r} is not a SHA-256")
    return digest
