"""A LoRA adapter: its tensors under plain names, compared with the base it is for. Reads headers and small files."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swarm_core.errors import BadRequest, ServableCorrupt
from swarm_core.manifest import FileEntry, Manifest, TensorEntry, manifest_to_json
from swarm_core.servable_parts import ADAPTER_CONFIG_NAME, AdapterOf, TrainingSplit
from swarm_core.tensor_names import LORA_A, LORA_B, LORA_MAGNITUDE

from swarm_leader.catalog.sources.adapter_fit import modules_of, why_module_unfit
from swarm_leader.catalog.sources.checkpoint import check_unchanged, written
from swarm_leader.catalog.sources.decoder_tensors import FLOATS, served_name
from swarm_leader.catalog.sources.lora_config import LoraConfig, parse_lora_config, published_config
from swarm_leader.catalog.sources.small_files import fingerprint_files, names_in, read_named, small_file
from swarm_leader.catalog.sources.weight_files import PICKLED, Weight, collect_weights, weight_path

ADAPTER_WEIGHTS_NAME = "adapter_model.safetensors"
_SAVED = re.compile(
    r"(?:base_model\.model\.)?(?P<module>[A-Za-z0-9_.]{1,160})\.lora_(?P<which>A|B|magnitude_vector)(?:\.default)?"
    r"(?:\.weight)?",
    re.ASCII,
)
_ENDINGS = {"A": LORA_A, "B": LORA_B, "magnitude_vector": LORA_MAGNITUDE}


@dataclass(frozen=True)
class Adapter:
    """What would be imported. modules: path -> rank. weights: tensor name as it is served -> where it lies.

    split, quantization: what an export says of its training.
    """

    base: Manifest
    config: LoraConfig
    modules: Mapping[str, int]
    weights: Mapping[str, Weight]
    paths: frozenset[Path]
    file_fingerprint: str
    split: TrainingSplit | None = None
    quantization: str = ""

    @property
    def fingerprint(self) -> str:
        """Of the files and of the base: another base is another adapter."""
        base = hashlib.sha256(manifest_to_json(self.base)).hexdigest()
        return f"{self.file_fingerprint} on {base}"

    def check_unchanged(self) -> None:
        """Raises ServableCorrupt when a file was changed, replaced or removed since it was looked at."""
        check_unchanged(self.paths, self.file_fingerprint)

    def small_contents(self) -> dict[str, bytes]:
        """adapter_config.json with what was understood of it."""
        return {ADAPTER_CONFIG_NAME: written(published_config(self.config, self.base.model_id, self.modules))}

    def manifest_of(
        self,
        model_id: str,
        tensors: Mapping[str, TensorEntry],
        files: Mapping[str, FileEntry],
        extra: Mapping[str, Any],
        **facts: Any,
    ) -> Manifest:
        """The manifest: the base's numbers, the adapter's tensors."""
        base, scale = self.base, self.config.alpha / _divisor(self.config)
        return Manifest(
            model_id=model_id,
            model_type=base.model_type,
            layer_count=base.layer_count,
            hidden_size=base.hidden_size,
            vocabulary_size=base.vocabulary_size,
            kv_heads=base.kv_heads,
            head_dim=base.head_dim,
            tied_embeddings=base.tied_embeddings,
            context_tokens_max=base.context_tokens_max,
            tensors=tensors,
            files=files,
            extra=extra,
            split=self.split,
            quantization=self.quantization,
            adapter=AdapterOf(
                base_model_id=base.model_id,
                rank=max(self.modules.values()),
                targets=tuple(sorted({module.rpartition(".")[2] for module in self.modules})),
                scale=scale,
                scales=tuple(
                    (module, own) for module in self.modules if (own := self.config.scale_of(module)) != scale
                ),
                variant=self.config.variant,
            ),
            **facts,
        )


def is_adapter(names: set[str]) -> bool:
    """Whether a folder with these names holds an adapter and no model."""
    return ADAPTER_CONFIG_NAME in names and not {"model.safetensors", "model.safetensors.index.json"} & names


def read_adapter(folder: Path, asked_base: str, models: Mapping[str, Manifest]) -> Adapter:
    """Look at a folder with adapter_config.json and adapter_model.safetensors.

    asked_base: id of the base, "" as the config says; models: what the catalog has. Raises BadRequest for what is not
    served, also without a base, and ServableCorrupt for what is damaged.
    """
    path = small_file(folder, ADAPTER_CONFIG_NAME)
    if path is None:
        raise BadRequest(f"{folder} has no {ADAPTER_CONFIG_NAME}", field="source")
    config = parse_lora_config(read_named(path, ADAPTER_CONFIG_NAME))
    names = names_in(folder)
    pickled = sorted(name for name in names if name.lower().endswith(PICKLED))
    if ADAPTER_WEIGHTS_NAME not in names and pickled:
        raise BadRequest(
            f"the adapter's weights are pickled ({pickled[0]}); reading those can run code. Save them as safetensors.",
            field="source",
        )
    base = find_base(asked_base, config.base_name, models)
    weights = weight_path(folder, ADAPTER_WEIGHTS_NAME)
    paths = frozenset((path, weights))
    fingerprint = fingerprint_files(paths)
    found = plain_names(collect_weights({ADAPTER_WEIGHTS_NAME: weights}, None))
    return Adapter(base, config, check_fits(found, config, base), found, paths, fingerprint)


def find_base(asked: str, named: str, models: Mapping[str, Manifest]) -> Manifest:
    """The model an adapter is for: the one asked for, else the one its config names, exactly or by its last part.

    Raises BadRequest when the catalog has none, several, or only an adapter of that name.
    """
    whole = {model_id: manifest for model_id, manifest in models.items() if manifest.adapter is None}
    wanted = asked or named
    found = [wanted] if wanted in whole else []
    if not found and not asked and named:
        last = named.rstrip("/").rpartition("/")[2]
        found = [model_id for model_id in whole if model_id.rpartition("/")[2] == last]
    if len(found) == 1:
        return whole[found[0]]
    why = f"{len(found)} models of that name ({', '.join(sorted(found)[:4])})" if found else "no model of that name"
    if wanted in models and wanted not in whole:
        why = "only an adapter of that name"
    available = ", ".join(sorted(whole)[:20]) or "none"
    who = "the base asked for is" if asked else "the adapter is for"
    raise BadRequest(
        f"{who} {wanted[:200]!r}; the catalog has {why}. Import that first, or name one with --base: {available}",
        field="base_model_id",
    )


def plain_names(saved: Mapping[str, Weight]) -> dict[str, Weight]:
    """An adapter's tensors under the names stages know. Raises BadRequest for one that is no part of plain LoRA."""
    named: dict[str, Weight] = {}
    for tensor, weight in saved.items():
        match = _SAVED.fullmatch(tensor)
        if match is None:
            raise BadRequest(f"tensor {tensor[:200]!r} {_why_not(tensor)}", field="source", tensor=tensor[:200])
        module = served_name(f"{match['module']}.weight") or ""
        name = module.removesuffix(".weight") + _ENDINGS[match["which"]]
        if name in named:
            raise ServableCorrupt(f"tensor {name[:200]!r} is there twice under different names")
        named[name] = weight
    return named


def check_fits(weights: Mapping[str, Weight], config: LoraConfig, base: Manifest) -> dict[str, int]:
    """The rank of every module an adapter changes, each compared with the base.

    Raises BadRequest for what is not served, ServableCorrupt for modules or shapes the base does not have.
    """
    for name, weight in weights.items():
        if weight.span.dtype not in FLOATS:
            raise BadRequest(f"tensor {name!r} is {weight.span.dtype}; served are {sorted(FLOATS)}", field="source")
    modules = modules_of({name: weight.span.shape for name, weight in weights.items()})
    if not modules:
        raise ServableCorrupt("the adapter has no tensors")
    ranks = {}
    for module, shapes in modules.items():
        why = why_module_unfit(module, shapes, config.variant, base)
        if why:
            remedy = "`swarm model-import SOURCE --base MODEL` names the model it was trained on"
            raise ServableCorrupt(f"the adapter does not fit its base: {why}; {remedy}")
        ranks[module] = shapes[LORA_A][0]
        if ranks[module] != config.rank_of(module):
            says = f"{ADAPTER_CONFIG_NAME} says {config.rank_of(module)}: its scale is not known"
            raise ServableCorrupt(f"{module} has rank {ranks[module]}, {says}")
    return ranks


def _why_not(tensor: str) -> str:
    if "lora_embedding_" in tensor:
        return "is of a trainable embedding, which is not served"
    if ".lora_" in tensor:
        return "is of a kind of adapter that is not served"
    return "is no LoRA pair: modules saved whole (modules_to_save, biases, embeddings) are not served"


def _divisor(config: LoraConfig) -> float:
    return config.rank**0.5 if config.is_rslora else config.rank
