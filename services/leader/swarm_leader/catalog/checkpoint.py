"""A Hugging Face folder: what of it is imported, under which names. Reads headers and small files, writes nothing."""

import hashlib
import json
import re
import stat
from collections.abc import Collection
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from swarm_core.errors import BadRequest, ServableCorrupt
from swarm_core.manifest import CONFIG_NAME, TENSORS_MAX, is_tensor_name, small_file_bytes_max
from swarm_core.slices import EMBEDDING, FINAL_NORM, HEAD, layer_of

from swarm_leader.catalog.config_json import ModelConfig, check_no_own_code, parse_config, parse_json_object
from swarm_leader.catalog.files import read_small
from swarm_leader.catalog.header import TensorSpan, read_header

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
_WEIGHT_FILE = re.compile(r"[A-Za-z0-9_][\w.-]{0,88}\.safetensors", re.ASCII)
_WEIGHT_FILES_MAX = 4096
_NAMES_MAX = 10_000  # in a checkpoint's folder
_PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
_FLOATS = {"F64", "F32", "F16", "BF16"}
_PREFIXES = (("language_model.model.", "model."), ("language_model.lm_head.", "lm_head."))
_BARE = re.compile(r"^(embed_tokens|layers|norm)\.")  # saved from the base model, without its head
_HARMLESS = re.compile(r"\.rotary_emb\.inv_freq$")  # a table every stage computes for itself


@dataclass(frozen=True)
class Weight:
    """One tensor of the checkpoint. path: its file, real path; file: that file's name in the checkpoint."""

    path: Path
    file: str
    span: TensorSpan


@dataclass(frozen=True)
class Checkpoint:
    """What would be imported. tokenizer: name -> path; weights: tensor name as it is served -> where it lies.

    fingerprint: of `paths`, every file that was looked at, as they were when it began.
    """

    config: ModelConfig
    generation: Path | None
    tokenizer: dict[str, Path]
    weights: dict[str, Weight]
    paths: frozenset[Path]
    fingerprint: str

    def check_unchanged(self) -> None:
        """Raises ServableCorrupt when a file was changed, replaced or removed since it was looked at."""
        try:
            is_same = fingerprint_files(self.paths) == self.fingerprint
        except OSError:
            is_same = False
        if not is_same:
            raise ServableCorrupt("the checkpoint was changed while it was imported; import it again")


def read_checkpoint(folder: Path) -> Checkpoint:
    """Look at a folder with config.json, a tokenizer and *.safetensors.

    Raises BadRequest for what is not served, ServableCorrupt for what is damaged.
    """
    small = {name: path for name in SMALL_NAMES if (path := _small_file(folder, name)) is not None}
    if CONFIG_NAME not in small:
        raise BadRequest(f"{folder} has no {CONFIG_NAME}: it is not a Hugging Face checkpoint", field="source")
    config = parse_config(read_named(small[CONFIG_NAME], CONFIG_NAME), str(folder))
    tokenizer = {name: small[name] for name in TOKENIZER_NAMES if name in small}
    if not any(name in tokenizer for name in _VOCABULARIES):
        raise BadRequest(f"{folder} has no tokenizer ({', '.join(_VOCABULARIES)})", field="source")
    if "tokenizer_config.json" in tokenizer:
        raw = read_named(tokenizer["tokenizer_config.json"], "tokenizer_config.json")
        check_no_own_code(parse_json_object(raw, "tokenizer_config.json"), "tokenizer_config.json")
    index = read_named(small[INDEX_NAME], INDEX_NAME) if INDEX_NAME in small else None
    files = choose_weight_files(_names_in(folder), index)
    paths = frozenset([*small.values(), *(_weight_path(folder, file) for file in files)])
    fingerprint = fingerprint_files(paths)
    found = _read_weights(folder, files, index)
    return Checkpoint(
        config=config,
        generation=small.get(GENERATION_NAME),
        tokenizer=tokenizer,
        weights=_served_weights(found, config),
        paths=paths,
        fingerprint=fingerprint,
    )


def choose_weight_files(names: Collection[str], index: bytes | None) -> list[str]:
    """The weight files of a checkpoint whose top folder holds `names`; index: its model.safetensors.index.json.

    Raises BadRequest when there are none that can be read, ServableCorrupt when the index is broken or leads elsewhere.
    """
    if index is not None:
        files = sorted(set(_weight_map(index).values()))
        if len(files) > _WEIGHT_FILES_MAX:
            raise ServableCorrupt(f"{INDEX_NAME} names {len(files)} files, more than {_WEIGHT_FILES_MAX}")
        return files
    if "model.safetensors" in names:
        return ["model.safetensors"]
    weights = sorted(name for name in names if _WEIGHT_FILE.fullmatch(name))
    if weights == ["adapter_model.safetensors"]:
        raise BadRequest("this is a LoRA adapter, not a model; merge it into its base first", field="source")
    if len(weights) == 1:
        return weights
    if weights:
        raise BadRequest(
            f"there are {len(weights)} safetensors files but no {INDEX_NAME} that orders them", field="source"
        )
    pickled = sorted(name for name in names if name.lower().endswith(_PICKLED))
    if pickled:
        raise BadRequest(
            f"the weights are pickled ({pickled[0]}); reading those can run code. Convert them to safetensors first.",
            field="source",
        )
    raise BadRequest("there are no weights (*.safetensors)", field="source")


def fingerprint_files(paths: Collection[Path]) -> str:
    """Names, sizes and times of files, hashed: equal when nothing was touched."""
    facts = []
    for path in sorted(paths):
        status = path.stat()
        facts.append([str(path), status.st_size, status.st_mtime_ns])
    return hashlib.sha256(json.dumps(facts).encode("utf-8", "surrogateescape")).hexdigest()


def _weight_map(index: bytes) -> dict[str, str]:
    """Tensor name -> file name, both from the index."""
    weight_map = parse_json_object(index, INDEX_NAME).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ServableCorrupt(f"{INDEX_NAME} has no weight_map")
    if len(weight_map) > TENSORS_MAX:
        raise ServableCorrupt(f"{INDEX_NAME} names {len(weight_map)} tensors, more than {TENSORS_MAX}")
    for tensor, file in weight_map.items():
        if not isinstance(file, str) or not _WEIGHT_FILE.fullmatch(file):
            raise ServableCorrupt(
                f"{INDEX_NAME}: {tensor[:200]!r} is in {str(file)[:200]!r}, not a safetensors file beside it"
            )
    return weight_map


def _read_weights(folder: Path, files: list[str], index: bytes | None) -> dict[str, Weight]:
    """Every tensor by the name it has in the checkpoint."""
    weight_map = _weight_map(index) if index is not None else None
    found: dict[str, Weight] = {}
    seen: dict[str, str] = {}  # tensor -> file
    for file in files:
        path = _weight_path(folder, file)
        for tensor, span in read_header(path).items():
            if tensor in seen:  # whichever is taken, another reader would take the other one
                raise ServableCorrupt(f"tensor {tensor[:200]!r} is both in {seen[tensor]} and in {file}")
            seen[tensor] = file
            if weight_map is None or weight_map.get(tensor) == file:
                found[tensor] = Weight(path, file, span)
        if len(seen) > TENSORS_MAX:
            raise ServableCorrupt(f"the checkpoint has more than {TENSORS_MAX} tensors")
    missing = sorted(set(weight_map or ()) - set(found))
    if missing:
        raise ServableCorrupt(
            f"{INDEX_NAME} promises {missing[0][:200]!r} ({len(missing)} in all), which no file holds"
        )
    return found


def _served_weights(found: dict[str, Weight], config: ModelConfig) -> dict[str, Weight]:
    """The tensors of the text decoder under the names every stage knows, in the order of the files."""
    served: dict[str, Weight] = {}
    for tensor, weight in sorted(found.items(), key=lambda item: (item[1].file, item[1].span.begin)):
        name = served_name(tensor)
        if name is None or (name == HEAD and config.tied_embeddings):
            continue
        if not is_tensor_name(name):
            raise ServableCorrupt(f"{tensor[:200]!r} is not a tensor's name")
        layer = layer_of(name)
        if (layer is None and name not in (EMBEDDING, FINAL_NORM, HEAD)) or (layer or 0) >= config.layer_count:
            raise BadRequest(
                f"tensor {tensor[:200]!r} is not part of a {config.model_type} text model of {config.layer_count} "
                "layers; only text decoders are served",
                field="source",
                tensor=tensor[:200],
            )
        if name in served:
            raise ServableCorrupt(f"tensor {name[:200]!r} is there twice under different names")
        if weight.span.dtype not in _FLOATS:
            raise BadRequest(
                f"tensor {tensor[:200]!r} is {weight.span.dtype}; served are {sorted(_FLOATS)}", field="source"
            )
        served[name] = weight
    expected = (config.vocabulary_size, config.hidden_size)
    if EMBEDDING in served and served[EMBEDDING].span.shape != expected:
        raise ServableCorrupt(
            f"{EMBEDDING} is {list(served[EMBEDDING].span.shape)}, config.json promises {list(expected)}"
        )
    return served


def served_name(tensor: str) -> str | None:
    """The name a tensor is served under; None for one that is not needed."""
    if _HARMLESS.search(tensor):
        return None
    for prefix, served in _PREFIXES:
        if tensor.startswith(prefix):
            return served + tensor.removeprefix(prefix)
    return f"model.{tensor}" if _BARE.match(tensor) else tensor


def read_named(path: Path, name: str) -> bytes:
    """A small file of a checkpoint, whole. name: what it is in the checkpoint. Raises ServableCorrupt, OSError."""
    return read_small(path, _bytes_max(name))


def _bytes_max(name: str) -> int:
    return small_file_bytes_max(CONFIG_NAME if name == GENERATION_NAME else name)


def _names_in(folder: Path) -> set[str]:
    """The names in a folder. Raises BadRequest when there are too many for a checkpoint."""
    names = {path.name for path in islice(folder.iterdir(), _NAMES_MAX + 1)}
    if len(names) > _NAMES_MAX:
        raise BadRequest(f"{folder} has more than {_NAMES_MAX} files; it is not a checkpoint", field="source")
    return names


def _weight_path(folder: Path, file: str) -> Path:
    path = _real_file(folder, file)
    if path is None:
        raise ServableCorrupt(f"{file} is missing from {folder}")
    return path


def _small_file(folder: Path, name: str) -> Path | None:
    path = _real_file(folder, name)
    bytes_max = _bytes_max(name)
    if path is not None and path.stat().st_size > bytes_max:
        raise BadRequest(f"{name} has {path.stat().st_size} bytes, more than {bytes_max}", field="source")
    return path


def _real_file(folder: Path, name: str) -> Path | None:
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
