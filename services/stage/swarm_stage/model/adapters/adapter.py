"""LoRA adapters from their files, checked against the modules they change. Changes no module; computes nothing.

Shapes: R rank, I inputs, O outputs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from swarm_core.errors import CapabilityMissing, ServableCorrupt
from swarm_core.servable_parts import DORA, LORA
from swarm_core.slices import LayerRange, layer_of
from torch import nn
from transformers import PreTrainedModel

from swarm_stage.model.adapters.config import AdapterConfig, read_adapter_config
from swarm_stage.model.holding import AdapterSource
from swarm_stage.model.weights import Amend, read_tensor

ADAPTERS_MAX = 32  # of one stage; the fellow declares as many (capability serve_adapters)
CHOSEN, ALWAYS, MERGED = "chosen", "always", "merged"
LEAN, LEAN16, PEFT = "lean", "lean16", "peft"
PATHS = (LEAN, LEAN16, PEFT)
_A, _B = ".lora_A.weight", ".lora_B.weight"
# What a variant has beside A and B.
_MORE = {LORA: (), DORA: (".lora_magnitude_vector",)}


@dataclass(frozen=True)
class LowRank:
    """What an adapter adds to one linear layer: x -> scale B A x. a_RI, b_OR: float32, in main memory.

    more_O: the numbers of a variant, one an output.
    """

    a_RI: torch.Tensor
    b_OR: torch.Tensor
    scale: float
    more_O: torch.Tensor | None = None


@dataclass(frozen=True)
class Adapter:
    """One adapter's part of a slice. parts: by module, numbered as in the checkpoint, in its order."""

    model_id: str
    use: str
    config: AdapterConfig
    parts: Mapping[str, LowRank]


def read_adapters(
    sources: Sequence[AdapterSource], model: PreTrainedModel, layers: LayerRange, lora: str
) -> tuple[Adapter, ...]:
    """The adapters of a slice, in their order.

    model: the slice's modules, with weights or without. lora: the path unmerged ones are computed by, one of PATHS.
    Tensors of layers outside `layers` are left where they are.
    Raises ServableCorrupt naming the tensor that is missing, unreadable, of another shape or rank, not finite, or of a
    module the base does not have; CapabilityMissing for a kind of adapter that is not served, or not by this path.
    """
    if lora not in PATHS:
        raise CapabilityMissing(f"adapters are not computed by {lora[:40]!r}; one of: {', '.join(PATHS)}", field="lora")
    if len(sources) > ADAPTERS_MAX:
        raise CapabilityMissing(f"{len(sources)} adapters at once; a stage holds at most {ADAPTERS_MAX}")
    if len({source.model_id for source in sources}) != len(sources):
        raise ServableCorrupt("one adapter was given twice")
    return tuple(_read_named(source, model, layers, lora) for source in sources)


def merge_of(adapters: Sequence[Adapter]) -> Amend | None:
    """What fill_parameters makes of each weight; None when no adapter is merged.

    W + scale B A is summed in float32, whatever the weight is stored in, and rounded once when it is cast.
    """
    merged = [adapter for adapter in adapters if adapter.use == MERGED]
    if not merged:
        return None

    def amend(name: str, weight_OI: torch.Tensor) -> torch.Tensor:
        for adapter in merged:
            part = adapter.parts.get(name.removesuffix(".weight"))
            if part is not None:
                weight_OI = (part.b_OR @ part.a_RI).mul_(part.scale).add_(weight_OI)  # one copy, not three
        return weight_OI

    return amend


def module_in_slice(module: str, layers: LayerRange) -> str:
    """A module's path in the slice, whose layers are numbered from 0."""
    layer = layer_of(module)
    assert layer is not None, module
    _, _, rest = module.removeprefix("model.layers.").partition(".")
    return f"model.layers.{layer - layers.layer_start}.{rest}"


def _read_named(source: AdapterSource, model: PreTrainedModel, layers: LayerRange, lora: str) -> Adapter:
    """What is wrong with one of several is said with its name: all have tensors of the same names."""
    try:
        return _read_adapter(source, model, layers, lora)
    except ServableCorrupt as error:
        raise ServableCorrupt(f"adapter {source.model_id}: {error.message}", **error.facts) from error


def _read_adapter(source: AdapterSource, model: PreTrainedModel, layers: LayerRange, lora: str) -> Adapter:
    config = read_adapter_config(source.model_dir)
    if config.variant != LORA and lora != PEFT:
        raise CapabilityMissing(
            f"adapter {source.model_id} is of the kind {config.variant}, which only peft computes, and this fellow "
            f"computes adapters by {lora} (SWARM_SERVE_LORA)",
            variant=config.variant,
        )
    if source.use not in (CHOSEN, ALWAYS, MERGED):
        raise ServableCorrupt(f"it is used {source.use[:40]!r}, which is no way to use one")
    endings = (_A, _B, *_MORE[config.variant])
    modules = dict.fromkeys(_module_of(name, endings) for name in source.tensor_files)
    parts = {
        module: _read_part(module, source.tensor_files, config, _linear_of(module, model, layers))
        for module in modules
        if layers.layer_start <= _layer(module) < layers.layer_stop
    }
    # What peft alone computes is not merged by us: it is added in every session, to the same effect.
    use = ALWAYS if source.use == MERGED and config.variant != LORA else source.use
    return Adapter(source.model_id, use, config, parts)


def _module_of(name: str, endings: Sequence[str]) -> str:
    for ending in endings:
        if name.endswith(ending) and layer_of(name) is not None:
            return name.removesuffix(ending)
    raise ServableCorrupt(
        f"tensor {name[:200]} is no part of a LoRA adapter of decoder layers ({', '.join(endings)})", tensor=name[:200]
    )


def _layer(module: str) -> int:
    layer = layer_of(module)
    assert layer is not None, module
    return layer


def _linear_of(module: str, model: PreTrainedModel, layers: LayerRange) -> nn.Linear | None:
    """The linear layer of this path; None when the base has none there, or one of another slice."""
    try:
        linear = model.get_submodule(module_in_slice(module, layers))
    except AttributeError:
        return None
    return linear if isinstance(linear, nn.Linear) else None


def _read_part(
    module: str, files: Mapping[str, str | Path], config: AdapterConfig, linear: nn.Linear | None
) -> LowRank:
    """A, B and what else there is of one module."""
    names = [module + ending for ending in (_A, _B, *_MORE[config.variant])]
    if linear is None:
        raise ServableCorrupt(f"tensor {names[0]} is of a linear layer that the base does not have", tensor=names[0])
    for name in names:
        if name not in files:
            raise ServableCorrupt(f"tensor {name} is missing from the adapter", tensor=name)
    rank = config.rank_of(module)
    shapes = [(rank, linear.in_features), (linear.out_features, rank), (linear.out_features,)]
    a_RI, b_OR, *more = [
        read_tensor(name, files[name], shape, torch.float32, torch.device("cpu"))
        for name, shape in zip(names, shapes, strict=False)
    ]
    return LowRank(a_RI, b_OR, config.scale_of(module), more[0] if more else None)
