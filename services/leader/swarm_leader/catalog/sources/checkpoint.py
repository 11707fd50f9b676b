"""A Hugging Face folder: what of it is imported, under which names. Reads headers and small files, writes nothing."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swarm_core.errors import BadRequest, ServableCorrupt
from swarm_core.manifest import CONFIG_NAME, FileEntry, Manifest, TensorEntry
from swarm_core.servable_parts import TrainingSplit
from swarm_core.slices import LayerRange, slice_tensors

from swarm_leader.catalog.sources.config_json import ModelConfig, drop_private, parse_config, parse_json_object
from swarm_leader.catalog.sources.decoder_tensors import check_layers_alike, served_weights
from swarm_leader.catalog.sources.small_files import (
    GENERATION_NAME,
    INDEX_NAME,
    check_tokenizer,
    fingerprint_files,
    names_in,
    read_named,
    small_files,
)
from swarm_leader.catalog.sources.weight_files import (
    HeaderOf,
    Weight,
    choose_weight_files,
    collect_weights,
    weight_path,
)


@dataclass(frozen=True)
class Checkpoint:
    """What would be imported. tokenizer: name -> path; weights: tensor name as it is served -> where it lies.

    fingerprint: of `paths`, every file that was looked at, as they were when it began. split, quantization, notes: what
    an export says of its training; notes go into the manifest's extra.
    """

    config: ModelConfig
    generation: Path | None
    tokenizer: dict[str, Path]
    weights: dict[str, Weight]
    paths: frozenset[Path]
    fingerprint: str
    split: TrainingSplit | None = None
    quantization: str = ""
    notes: Mapping[str, str] | None = None

    def check_unchanged(self) -> None:
        """Raises ServableCorrupt when a file was changed, replaced or removed since it was looked at."""
        check_unchanged(self.paths, self.fingerprint)

    def small_contents(self) -> dict[str, bytes]:
        """config.json and generation_config.json without private keys, the tokenizer as it is; by published name."""
        contents = {CONFIG_NAME: written(self.config.document)}
        if self.generation is not None:
            generation = parse_json_object(read_named(self.generation, GENERATION_NAME), GENERATION_NAME)
            contents[GENERATION_NAME] = written(drop_private(generation))
        for name, path in self.tokenizer.items():
            contents[f"tokenizer/{name}"] = read_named(path, name)
        return contents

    def manifest_of(
        self,
        model_id: str,
        tensors: Mapping[str, TensorEntry],
        files: Mapping[str, FileEntry],
        extra: Mapping[str, Any],
        **facts: Any,
    ) -> Manifest:
        """The manifest. facts: further fields of it. Raises ServableCorrupt when a layer is missing."""
        config = self.config
        manifest = Manifest(
            model_id=model_id,
            model_type=config.model_type,
            layer_count=config.layer_count,
            hidden_size=config.hidden_size,
            vocabulary_size=config.vocabulary_size,
            kv_heads=config.kv_heads,
            head_dim=config.head_dim,
            tied_embeddings=config.tied_embeddings,
            context_tokens_max=config.context_tokens_max,
            tensors=tensors,
            files=files,
            extra={**extra, **(self.notes or {}), "attention_heads": config.attention_heads},
            split=self.split,
            quantization=self.quantization,
            **facts,
        )
        slice_tensors(manifest, LayerRange(0, config.layer_count, config.layer_count))
        return manifest


def read_checkpoint(
    folder: Path, names: Collection[str] | None = None, header_of: HeaderOf | None = None
) -> Checkpoint:
    """Look at a folder with config.json, a tokenizer and *.safetensors.

    names, header_of: what lies beside them, and how to read a weight file's header, when the weights are elsewhere.
    Raises BadRequest for what is not served, ServableCorrupt for what is damaged.
    """
    small = small_files(folder)
    config = read_config(small, folder)
    tokenizer = check_tokenizer(small, folder)
    index = read_named(small[INDEX_NAME], INDEX_NAME) if INDEX_NAME in small else None
    if names is None:
        files = {file: weight_path(folder, file) for file in choose_weight_files(names_in(folder), index)}
        paths = frozenset([*small.values(), *files.values()])
    else:
        files = {file: folder / file for file in choose_weight_files(names, index)}
        paths = frozenset(small.values())
    fingerprint = fingerprint_files(paths)
    weights = served_weights(collect_weights(files, index, header_of), config)
    check_layers_alike(weights, config.layer_count)
    return Checkpoint(
        config=config,
        generation=small.get(GENERATION_NAME),
        tokenizer=tokenizer,
        weights=weights,
        paths=paths,
        fingerprint=fingerprint,
    )


def read_config(small: Mapping[str, Path], folder: Path) -> ModelConfig:
    """config.json among the small files of a folder. Raises BadRequest when it is missing or not served."""
    if CONFIG_NAME not in small:
        raise BadRequest(f"{folder} has no {CONFIG_NAME}: it is not a Hugging Face checkpoint", field="source")
    return parse_config(read_named(small[CONFIG_NAME], CONFIG_NAME), str(folder))


def check_unchanged(paths: frozenset[Path], fingerprint: str) -> None:
    """Raises ServableCorrupt when one of these files is not what it was when the fingerprint was taken."""
    try:
        is_same = fingerprint_files(paths) == fingerprint
    except OSError:
        is_same = False
    if not is_same:
        raise ServableCorrupt("the checkpoint was changed while it was imported; import it again")


def written(document: Mapping[str, Any]) -> bytes:
    """A small JSON file as it is published: sorted, readable."""
    return json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"
