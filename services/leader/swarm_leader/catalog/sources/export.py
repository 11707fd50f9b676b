"""A folder that training exported: shards of each stage, where it cut, its tokenizer. Reads headers and small files.

<model>/{servable.json, config.json, shards/stage-0/*.safetensors, shards/stage-1/..., tokenizer/}. Shards that hold
LoRA adapters (adapter_config.json beside them) make an adapter of the base that servable.json names.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from swarm_core.decoder_config import LAYERS_MAX
from swarm_core.errors import BadRequest, ServableCorrupt
from swarm_core.manifest import CONFIG_NAME, MANIFEST_NAME, Manifest
from swarm_core.servable_parts import ADAPTER_CONFIG_NAME, TrainingSplit
from swarm_core.tensor_names import EMBEDDING, FINAL_NORM, HEAD, layer_of

from swarm_leader.catalog.files import open_plain
from swarm_leader.catalog.sources.adapter import Adapter, check_fits, find_base, plain_names
from swarm_leader.catalog.sources.checkpoint import Checkpoint, read_config
from swarm_leader.catalog.sources.config_json import ModelConfig
from swarm_leader.catalog.sources.decoder_tensors import check_layers_alike, served_name, served_weights
from swarm_leader.catalog.sources.export_json import SHARDS_NAME, Export, parse_export
from swarm_leader.catalog.sources.lora_config import parse_lora_config
from swarm_leader.catalog.sources.shards import Placed, place_recorded, place_unrecorded
from swarm_leader.catalog.sources.small_files import (
    GENERATION_NAME,
    TOKENIZER_NAMES,
    check_tokenizer,
    fingerprint_files,
    names_in,
    read_named,
    small_file,
)
from swarm_leader.catalog.sources.weight_files import PICKLED, WEIGHT_FILE, Weight, collect_weights, weight_path

_STAGE = re.compile(r"stage-(0|[1-9][0-9]{0,3})", re.ASCII)
_LAYER = re.compile(r"model\.layers\.([0-9]+)\.", re.ASCII)
_BLOCK_BYTES = 4 * 2**20


@dataclass(frozen=True)
class Shard:
    """What one stage of training left. weights: name in its files -> where it lies; named as the folder is."""

    name: str
    files: tuple[Path, ...]
    weights: Mapping[str, Weight]
    lora_config: Path | None


def read_export(folder: Path, asked_base: str, models: Mapping[str, Manifest]) -> Checkpoint | Adapter:
    """Look at an exported folder. asked_base, models: as adapter.read_adapter has them.

    Raises BadRequest for what is not served, ServableCorrupt for shards that are damaged, overlap, lack a layer or
    contradict the boundaries that were recorded.
    """
    manifest = small_file(folder, MANIFEST_NAME)
    export = parse_export(read_named(manifest, MANIFEST_NAME)) if manifest is not None else Export()
    shards = _read_shards(folder)
    if export.stage_count is not None and export.stage_count != len(shards):
        raise ServableCorrupt(f"{MANIFEST_NAME} says {export.stage_count} stages, there are {len(shards)} shards")
    if export.codecs and len(export.codecs) != len(shards) - 1:
        raise ServableCorrupt(
            f"{MANIFEST_NAME} has {len(export.codecs)} codecs for {len(shards) - 1} boundaries between shards"
        )
    seen = [] if manifest is None else [manifest]
    if any(shard.lora_config for shard in shards):
        return _adapter_of(export, shards, seen, asked_base, models)
    if asked_base:
        raise BadRequest("the shards hold whole weights; a base belongs to a LoRA adapter", field="base_model_id")
    return _checkpoint_of(folder, export, shards, seen)


def _read_shards(folder: Path) -> list[Shard]:
    """Every shards/stage-*, in order."""
    place = folder / SHARDS_NAME
    if not place.resolve().is_relative_to(folder.resolve()):
        raise BadRequest(f"{SHARDS_NAME} is a link that leads out of {folder}", field="source")
    names = [name for name in names_in(place) if not name.startswith(".")]
    odd = sorted(name for name in names if not _STAGE.fullmatch(name))
    if odd:
        raise ServableCorrupt(f"{SHARDS_NAME}/{odd[0][:100]} is no shard; they are called stage-0, stage-1 ...")
    if not names or len(names) > LAYERS_MAX:
        raise ServableCorrupt(f"{SHARDS_NAME} has {len(names)} shards, not 1 to {LAYERS_MAX}")
    missing = {f"stage-{stage}" for stage in range(len(names))} - set(names)
    if missing:
        raise ServableCorrupt(f"of {len(names)} shards, {min(missing)} is missing")
    return [_read_shard(folder, f"stage-{stage}") for stage in range(len(names))]


def _read_shard(folder: Path, name: str) -> Shard:
    place = f"{SHARDS_NAME}/{name}"
    if not (folder / place).is_dir():
        raise ServableCorrupt(f"{place} is no folder")
    if not (folder / place).resolve().is_relative_to(folder.resolve()):
        raise BadRequest(f"{place} is a link that leads out of {folder}", field="source")
    names = names_in(folder / place)
    files = sorted(file for file in names if WEIGHT_FILE.fullmatch(file))
    pickled = sorted(file for file in names if file.lower().endswith(PICKLED))
    if not files:
        what = f"only pickled weights ({pickled[0]}); reading those can run code" if pickled else "no *.safetensors"
        raise BadRequest(f"{place} has {what}", field="source")
    paths = {f"{place}/{file}": weight_path(folder, f"{place}/{file}") for file in files}
    lora = f"{place}/{ADAPTER_CONFIG_NAME}"
    return Shard(name, tuple(paths.values()), collect_weights(paths, None), small_file(folder, lora))


def _checkpoint_of(folder: Path, export: Export, shards: list[Shard], seen: list[Path]) -> Checkpoint:
    """Shards of whole weights."""
    small = {name: path for name in (CONFIG_NAME, GENERATION_NAME) if (path := small_file(folder, name)) is not None}
    config = read_config(small, folder)
    inner = {name: small_file(folder, f"tokenizer/{name}") for name in TOKENIZER_NAMES}
    tokenizer = check_tokenizer({name: path for name, path in inner.items() if path is not None}, folder / "tokenizer")
    paths = frozenset(
        [*seen, *small.values(), *tokenizer.values(), *(path for shard in shards for path in shard.files)]
    )
    fingerprint = fingerprint_files(paths)
    named = [_named(shard) for shard in shards]
    layers = [_layers(names) for names in named]
    if export.boundaries is None:
        placed = place_unrecorded(layers, config.layer_count)
    else:
        placed = place_recorded(layers, export.boundaries, config.layer_count)
    merged, config = _merge(shards, named, placed, config)
    weights = served_weights(merged, config)
    check_layers_alike(weights, config.layer_count)
    return Checkpoint(
        config=config,
        generation=small.get(GENERATION_NAME),
        tokenizer=tokenizer,
        weights=weights,
        paths=paths,
        fingerprint=fingerprint,
        split=TrainingSplit(placed.layer_starts, export.boundaries is not None, export.codecs),
        quantization=export.quantization,
        notes={"base": export.base} if export.base.isprintable() and export.base else None,
    )


def _merge(
    shards: list[Shard], named: list[dict[str, Weight]], placed: Placed, config: ModelConfig
) -> tuple[dict[str, Weight], ModelConfig]:
    """Every tensor under its name in the whole model, and the config of it.

    The last stage of a model with tied embeddings has a copy of them as its head; training may have changed that copy.
    """
    merged: dict[str, Weight] = {}
    last = len(shards) - 1
    for stage, (shard, weights, offset) in enumerate(zip(shards, named, placed.offsets, strict=True)):
        for name, weight in weights.items():
            wanted = HEAD if name == EMBEDDING and stage == last and EMBEDDING in merged else _moved(name, offset)
            at = {EMBEDDING: 0, FINAL_NORM: last, HEAD: last}.get(wanted, stage)
            if stage != at:
                raise ServableCorrupt(f"{shard.name} holds {name}, which belongs to stage-{at}")
            if wanted in merged:
                raise ServableCorrupt(f"tensor {wanted[:200]!r} is there twice under different names")
            merged[wanted] = weight
    if HEAD in merged and config.tied_embeddings and EMBEDDING in merged:
        if _are_same(merged[HEAD], merged[EMBEDDING]):
            del merged[HEAD]
        else:
            document = {**config.document, "tie_word_embeddings": False}
            config = replace(config, tied_embeddings=False, document=document)
    return merged, config


def _adapter_of(
    export: Export, shards: list[Shard], seen: list[Path], asked: str, models: Mapping[str, Manifest]
) -> Adapter:
    """Shards of LoRA adapters: one adapter over all layers."""
    configs = [shard.lora_config for shard in shards]
    lacking = [shard.name for shard in shards if shard.lora_config is None]
    if lacking:
        raise ServableCorrupt(f"{lacking[0]} has no {ADAPTER_CONFIG_NAME}, other shards do")
    paths = frozenset([*seen, *filter(None, configs), *(path for shard in shards for path in shard.files)])
    fingerprint = fingerprint_files(paths)
    parsed = [parse_lora_config(read_named(path, ADAPTER_CONFIG_NAME)) for path in configs if path is not None]
    for shard, config in zip(shards, parsed, strict=True):
        if replace(config, base_name="") != replace(parsed[0], base_name=""):
            raise ServableCorrupt(f"{ADAPTER_CONFIG_NAME} of {shard.name} says another rank or scale than stage-0's")
    base = find_base(asked, export.base or parsed[0].base_name, models)
    named = [plain_names(shard.weights) for shard in shards]
    layers = [_layers(names) for names in named]
    if export.boundaries is None:
        placed = place_unrecorded(layers, base.layer_count)
    else:
        placed = place_recorded(layers, export.boundaries, base.layer_count, needs_all=False)
    merged: dict[str, Weight] = {}
    for weights, offset in zip(named, placed.offsets, strict=True):
        merged |= {_moved(name, offset): weight for name, weight in weights.items()}
    return Adapter(
        base=base,
        config=parsed[0],
        modules=check_fits(merged, parsed[0], base),
        weights=merged,
        paths=paths,
        file_fingerprint=fingerprint,
        split=TrainingSplit(placed.layer_starts, export.boundaries is not None, export.codecs),
        quantization=export.quantization,
    )


def _named(shard: Shard) -> dict[str, Weight]:
    """The shard's tensors under the names every stage knows, its own layer numbers kept."""
    named: dict[str, Weight] = {}
    for tensor, weight in shard.weights.items():
        name = served_name(tensor)
        if name is None:
            continue
        if name in named:
            raise ServableCorrupt(f"tensor {name[:200]!r} is there twice under different names")
        named[name] = weight
    return named


def _layers(names: Mapping[str, Weight]) -> set[int]:
    return {layer for name in names if (layer := layer_of(name)) is not None}


def _moved(name: str, offset: int) -> str:
    """A tensor's name with its layer counted through the whole model."""
    layer = layer_of(name)
    return name if layer is None or not offset else _LAYER.sub(f"model.layers.{layer + offset}.", name, count=1)


def _are_same(one: Weight, other: Weight) -> bool:
    """Whether two tensors have the same bytes."""
    if (one.span.dtype, one.span.shape) != (other.span.dtype, other.span.shape):
        return False
    left_bytes = one.span.size_bytes
    with open_plain(one.path) as mine, open_plain(other.path) as theirs:
        mine.seek(one.span.begin)
        theirs.seek(other.span.begin)
        while left_bytes:
            block = mine.read(min(_BLOCK_BYTES, left_bytes))
            if not block or block != theirs.read(len(block)):
                return False
            left_bytes -= len(block)
    return True
