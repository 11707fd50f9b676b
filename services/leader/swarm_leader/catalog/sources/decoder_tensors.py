"""Which tensors of a checkpoint a text decoder is made of, under the names every stage knows. Pure."""

import re
from collections import Counter
from collections.abc import Mapping

from swarm_core.errors import BadRequest, ServableCorrupt
from swarm_core.manifest import is_tensor_name
from swarm_core.tensor_names import EMBEDDING, FINAL_NORM, HEAD, layer_of

from swarm_leader.catalog.sources.config_json import ModelConfig
from swarm_leader.catalog.sources.weight_files import Weight

FLOATS = {"F64", "F32", "F16", "BF16"}
_PREFIXES = (("language_model.model.", "model."), ("language_model.lm_head.", "lm_head."))
_BARE = re.compile(r"^(embed_tokens|layers|norm)\.")  # saved from the base model, without its head
_HARMLESS = re.compile(r"\.rotary_emb\.inv_freq$")  # a table every stage computes for itself


def served_weights(found: Mapping[str, Weight], config: ModelConfig) -> dict[str, Weight]:
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
        if weight.span.dtype not in FLOATS:
            raise BadRequest(
                f"tensor {tensor[:200]!r} is {weight.span.dtype}; served are {sorted(FLOATS)}", field="source"
            )
        served[name] = weight
    expected = (config.vocabulary_size, config.hidden_size)
    if EMBEDDING in served and served[EMBEDDING].span.shape != expected:
        raise ServableCorrupt(
            f"{EMBEDDING} is {list(served[EMBEDDING].span.shape)}, config.json promises {list(expected)}"
        )
    return served


def check_layers_alike(weights: Mapping[str, Weight], layer_count: int) -> None:
    """Raise ServableCorrupt when a layer lacks what most layers have, or has it in another shape.

    Layers of a served family have the same tensors; what most of them have is what a stage will ask for. A
    layer without any tensor is not judged here.
    """
    shapes: dict[str, Counter[tuple[int, ...]]] = {}
    layers = {layer for name in weights if (layer := layer_of(name)) is not None}
    for name, weight in weights.items():
        if layer_of(name) is not None:
            shapes.setdefault(_within_layer(name), Counter())[weight.span.shape] += 1
    for part, counted in shapes.items():
        usual, times = counted.most_common(1)[0]
        if 2 * times <= layer_count:
            continue
        for layer in sorted(layers):
            found = weights.get(f"model.layers.{layer}.{part}")
            if found is None:
                raise ServableCorrupt(f"layer {layer} lacks {part}, which other layers have")
            if found.span.shape != usual:
                raise ServableCorrupt(
                    f"model.layers.{layer}.{part} is {list(found.span.shape)}, other layers' {list(usual)}"
                )


def _within_layer(name: str) -> str:
    return name.split(".", 3)[3]


def served_name(tensor: str) -> str | None:
    """The name a tensor is served under; None for one that is not needed."""
    if _HARMLESS.search(tensor):
        return None
    for prefix, served in _PREFIXES:
        if tensor.startswith(prefix):
            return served + tensor.removeprefix(prefix)
    return f"model.{tensor}" if _BARE.match(tensor) else tensor
