"""Adapters computed by peft's own layers, for what only they know and to compare ours with. peft is optional."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import torch
from swarm_core.errors import CapabilityMissing
from swarm_core.servable_parts import DORA
from swarm_core.slices import LayerRange
from torch import nn

from swarm_stage.model.adapters.adapted_linear import AdaptedLinear, replace_module
from swarm_stage.model.adapters.adapter import Adapter, module_in_slice
from swarm_stage.model.adapters.choice import AdapterChoice

_LAYERS = "model.layers."


class PeftLinear(AdaptedLinear):
    """A layer of peft's, told for each run which of its adapters are active."""

    def __init__(self, layer: Any, choice: AdapterChoice, always: frozenset[int]) -> None:
        super().__init__(layer, choice)
        self._always = always
        self._active: list[str] = []

    def apply_at(self, x: torch.Tensor, place: int) -> torch.Tensor:
        active = [_name(each) for each in sorted(self._always | {place}) if _name(each) in self.base.lora_A]
        if not active:
            return self.base.base_layer(x)
        if active != self._active:
            self.base.set_adapter(active, inference_mode=True)
            self._active = active
        return self.base(x)


def hold_by_peft(
    model: nn.Module,
    adapters: Mapping[int, Adapter],
    layers: LayerRange,
    choice: AdapterChoice,
    always: frozenset[int],
    import_module: Callable[[str], Any] = import_module,
) -> None:
    """Put peft's layers in place of those that adapters change. adapters: by their places. import_module: finds peft.

    Raises CapabilityMissing when peft is not installed.
    """
    try:
        peft = import_module("peft")
    except ImportError as error:
        raise CapabilityMissing(
            f"adapters cannot be computed by peft (SWARM_SERVE_LORA): it is not installed on this fellow ({error})"
        ) from error
    changed: dict[str, None] = {}
    # Given the layers alone: of a whole model peft would look at embeddings and head, which most slices do not have.
    decoder_layers = model.get_submodule("model.layers")
    for place, adapter in adapters.items():
        paths = {module_in_slice(module, layers).removeprefix(_LAYERS): module for module in adapter.parts}
        if not paths:
            continue
        config = adapter.config
        peft.inject_adapter_in_model(
            peft.LoraConfig(
                r=config.rank,
                lora_alpha=config.alpha,
                target_modules=list(paths),
                rank_pattern={path: config.rank_of(module) for path, module in paths.items()},
                alpha_pattern={path: config.alpha_of(module) for path, module in paths.items()},
                use_rslora=config.uses_rslora,
                use_dora=config.variant == DORA,
                inference_mode=True,
            ),
            decoder_layers,
            _name(place),
        )
        del decoder_layers.peft_config  # by which peft would take the next adapter for a mistake
        for path, module in paths.items():
            _fill(decoder_layers.get_submodule(path), _name(place), adapter.parts[module])
        changed |= dict.fromkeys(paths)
    for path in changed:
        replace_module(decoder_layers, path, lambda layer: PeftLinear(layer, choice, always))


def _fill(layer: Any, name: str, part: Any) -> None:
    """The adapter's own numbers in place of those training would begin with, in float32, as peft loads them."""
    device = layer.lora_A[name].weight.device
    layer.lora_A[name].weight = nn.Parameter(part.a_RI.to(device), requires_grad=False)
    layer.lora_B[name].weight = nn.Parameter(part.b_OR.to(device), requires_grad=False)
    if part.more_O is not None:
        layer.lora_magnitude_vector[name].weight = nn.Parameter(part.more_O.to(device), requires_grad=False)


def _name(place: int) -> str:
    return f"adapter_{place}"
