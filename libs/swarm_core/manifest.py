"""servable.json: what a model is made of, tensor by tensor. Parses and writes; touches no file."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from swarm_core.decoder_config import LAYERS_MAX
from swarm_core.errors import ServableCorrupt
from swarm_core.json_bounds import read_json_object
from swarm_core.manifest_fields import MANIFEST_NAME, count_in, flag_in, text_in
from swarm_core.manifest_parts import check_adapter, read_adapter, read_origin, read_quantization, read_split
from swarm_core.servable_parts import AdapterOf, HubOrigin, TrainingSplit

FORMAT = 1
MANIFEST_BYTES_MAX = 24 * 2**20  # what TENSORS_MAX take, and less than one message of a transfer
TENSORS_MAX = 50_000  # a thousand layers of a dozen tensors, four times over
FILES_MAX = 64
CONFIG_NAME = "config.json"
CONFIG_BYTES_MAX = 2**20
SMALL_FILE_BYTES_MAX = 64 * 2**20  # the largest tokenizer.json in use has 33 MiB
WEIGHT_BYTES_MAX = 2**60  # of all tensors: sums of it still fit every counter
DTYPE_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)
_TENSOR_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}", re.ASCII)
_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}", re.ASCII)  # of a path: printable, never hidden, never ".."
_PATH_CHARACTERS_MAX = 200
# What a stage reads. A file of another kind is never asked for: nothing that a library would import or unpickle, and
# nothing that is named as the cache names what it is still writing.
_SMALL_FILE_ENDINGS = (".json", ".jinja", ".txt", ".model")
_WEIGHT_FILE_ENDING = ".safetensors"
_DIMENSIONS_MAX = 8
_COUNT_MAX = 2**31 - 1
_SECONDS_MAX = 2**40


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
    """A model of the catalog. Tensor names are those of the checkpoint; small files are relative to the servable.

    split: None for a plain checkpoint. quantization: how it is loaded when a load does not say; "" is at full
    precision. adapter: None for a whole model. origin: None where the leader has the weights.
    """

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
    split: TrainingSplit | None = None
    quantization: str = ""
    adapter: AdapterOf | None = None
    origin: HubOrigin | None = None

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
    for name in ("split", "quantization", "adapter", "origin"):  # unset: as older releases wrote it
        if not document[name]:
            del document[name]
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def manifest_sha256(manifest_json: bytes) -> str:
    """The manifest's name, hex."""
    return hashlib.sha256(manifest_json).hexdigest()


def manifest_from_json(manifest_json: bytes) -> Manifest:
    """Read a manifest, trusting nothing in it.

    Raises ServableCorrupt when it is longer than MANIFEST_BYTES_MAX, a field is missing or of the wrong kind or beyond
    its bound, a path leaves the servable or is of a kind no stage reads, a size does not match its shape, or the model
    is empty or has more layers than tensors.
    """
    document = read_json_object(manifest_json, MANIFEST_NAME, MANIFEST_BYTES_MAX)
    try:
        if document.pop("format") != FORMAT:
            raise ServableCorrupt(f"{MANIFEST_NAME} is not of format {FORMAT}")
        tensors = {_tensor_name(name): _tensor(name, entry) for name, entry in document.pop("tensors").items()}
        files = {_small_file_name(name): _file(name, entry) for name, entry in document.pop("files").items()}
        numbers = ("hidden_size", "vocabulary_size", "kv_heads", "head_dim", "context_tokens_max")
        manifest = Manifest(
            tensors=tensors,
            files=files,
            model_id=text_in(document, "model_id"),
            model_type=text_in(document, "model_type"),
            tied_embeddings=flag_in(document, "tied_embeddings"),
            source=text_in(document, "source", default=""),
            created_s=count_in(document, "created_s", _SECONDS_MAX, default=0),
            extra=dict(document.get("extra") or {}),
            layer_count=count_in(document, "layer_count", LAYERS_MAX),
            split=read_split(document.get("split"), count_in(document, "layer_count", LAYERS_MAX)),
            quantization=read_quantization(document),
            adapter=read_adapter(document.get("adapter")),
            origin=read_origin(document.get("origin")),
            **{name: count_in(document, name, _COUNT_MAX) for name in numbers},
        )
    except ServableCorrupt:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise ServableCorrupt(f"{MANIFEST_NAME} cannot be read: {type(error).__name__}: {error}") from error
    _check_whole(manifest)
    return manifest


def _check_whole(manifest: Manifest) -> None:
    """Its parts fit each other, and sums over them every counter."""
    layers, tensors, files = manifest.layer_count, len(manifest.tensors), len(manifest.files)
    if not layers or not tensors:
        raise ServableCorrupt(f"{MANIFEST_NAME} describes no layers or no tensors")
    has_each_layer = layers <= tensors or manifest.adapter is not None
    if tensors > TENSORS_MAX or files > FILES_MAX or not has_each_layer:
        raise ServableCorrupt(
            f"{MANIFEST_NAME} has {layers} layers, {tensors} tensors and {files} files; at "
            f"most {LAYERS_MAX}, {TENSORS_MAX} and {FILES_MAX}, and a tensor for each layer"
        )
    if manifest.weight_bytes > WEIGHT_BYTES_MAX:
        raise ServableCorrupt(f"{MANIFEST_NAME} has {manifest.weight_bytes} bytes of weights")
    if manifest.adapter is not None:
        shapes = {name: (entry.dtype, entry.shape) for name, entry in manifest.tensors.items()}
        check_adapter(manifest.adapter, shapes, layers)


def check_relative_path(path: str) -> str:
    """A path that stays inside its folder on every file system, as given: plain parts, none hidden, 200 letters.

    Raises ServableCorrupt.
    """
    if len(path) > _PATH_CHARACTERS_MAX or not all(map(_PART.fullmatch, path.split("/"))):
        raise ServableCorrupt(f"path {path[:_PATH_CHARACTERS_MAX]!r} leaves the servable, or is not a plain name")
    return path


def is_tensor_name(name: str) -> bool:
    """Whether a tensor may be called so: at most 200 plain letters, digits and . _ -"""
    return _TENSOR_NAME.fullmatch(name) is not None


def small_file_bytes_max(name: str) -> int:
    """How large a small file of a servable may be, in bytes."""
    return CONFIG_BYTES_MAX if name == CONFIG_NAME else SMALL_FILE_BYTES_MAX


def _tensor_name(name: str) -> str:
    if not is_tensor_name(name):
        raise ServableCorrupt(f"{MANIFEST_NAME}: {name[:200]!r} is not a tensor's name")
    return name


def _small_file_name(name: str) -> str:
    check_relative_path(name)
    if not name.endswith(_SMALL_FILE_ENDINGS) or name == MANIFEST_NAME:
        raise ServableCorrupt(f"{MANIFEST_NAME}: {name!r} is no file a stage reads ({', '.join(_SMALL_FILE_ENDINGS)})")
    return name


def _tensor(name: str, entry: Any) -> TensorEntry:
    shape = tuple(entry["shape"])
    if len(shape) > _DIMENSIONS_MAX or not all(map(_is_extent, shape)):
        raise ServableCorrupt(f"tensor {name} has a shape that is not up to {_DIMENSIONS_MAX} counts")
    tensor = TensorEntry(
        file=check_relative_path(entry["file"]),
        begin=count_in(entry, "begin"),
        size_bytes=count_in(entry, "size_bytes"),
        dtype=text_in(entry, "dtype"),
        shape=shape,
        sha256=_sha256(entry),
    )
    if not tensor.file.endswith(_WEIGHT_FILE_ENDING):
        raise ServableCorrupt(f"tensor {name} is in {tensor.file!r}, not a {_WEIGHT_FILE_ENDING} file")
    if tensor.dtype not in DTYPE_BYTES:
        raise ServableCorrupt(f"tensor {name} has dtype {tensor.dtype[:20]!r}, which is not served")
    expected_bytes = tensor.element_count * DTYPE_BYTES[tensor.dtype]
    if expected_bytes != tensor.size_bytes:
        raise ServableCorrupt(f"tensor {name}: shape {list(shape)} of {tensor.dtype} is not {tensor.size_bytes} bytes")
    return tensor


def _file(name: str, entry: Any) -> FileEntry:
    return FileEntry(size_bytes=count_in(entry, "size_bytes", small_file_bytes_max(name)), sha256=_sha256(entry))


def _is_extent(extent: Any) -> bool:
    return isinstance(extent, int) and not isinstance(extent, bool) and 0 <= extent < 2**63


def _sha256(entry: Any) -> str:
    digest = entry["sha256"]
    if not isinstance(digest, str) or not _SHA256.fullmatch(digest):
        raise ServableCorrupt(f"{MANIFEST_NAME}: {str(digest)[:100]!r} is not a SHA-256")
    return digest
