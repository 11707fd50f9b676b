"""From files to the part of a model that one stage runs, in the leanest form its family has. Runs nothing."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from swarm_core.errors import ServableCorrupt
from swarm_core.quantization import NONE, is_quantized_weight
from swarm_core.slices import LayerRange
from torch import nn
from transformers import PreTrainedModel

from swarm_stage.model.adapters.adapted_linear import hold_adapters
from swarm_stage.model.adapters.adapter import merge_of, read_adapters
from swarm_stage.model.devices import Spread, spread_over
from swarm_stage.model.families import check_servable, context_tokens_max
from swarm_stage.model.holding import AdapterSource, Holding
from swarm_stage.model.inner_codecs import put_inner_codecs
from swarm_stage.model.lean.slice import LeanSlice, is_lean
from swarm_stage.model.products.half import hold_half
from swarm_stage.model.quantized.quantize import LinearPlace, quantizer_of
from swarm_stage.model.skeleton import empty_decoder, fill_computed_buffers
from swarm_stage.model.slice_config import slice_config, whole_config
from swarm_stage.model.slice_model import SliceModel
from swarm_stage.model.weights import DTYPES, fill_parameters


def build_slice(
    config: dict[str, Any],
    layers: LayerRange,
    tensor_files: Mapping[str, str | Path],
    holding: Holding,
    on_progress: Callable[[int, int], None],
    adapters: Sequence[AdapterSource] = (),
    inner_codecs: Mapping[int, str] = {},
) -> SliceModel:
    """Build the part of a model that one stage runs.

    config: the parsed config.json. tensor_files: name in the checkpoint -> safetensors file holding it alone under
    key "tensor". on_progress gets bytes done and in all. attention: "auto" or "grouped" share each key/value head among
    its queries in decode steps, "sdpa" leaves that to torch; what transformers' own forward runs decides for itself.
    adapters: in the order all stages share. inner_codecs: layer -> how training coded what enters it, inside the slice.
    Memory peaks near the slice plus its largest tensor, quantised or not: tensors are quantised one at a time, in
    chunks.
    Raises CapabilityMissing for a kind of model that is not served, ServableCorrupt naming what is wrong or missing,
    BadRequest for device_layers that are not exactly these layers, or a storage_dtype that dtype is not computed from.
    """
    dtype, attention = holding.dtype, holding.attention
    if dtype not in DTYPES:
        raise ServableCorrupt(f"weights cannot be computed in {dtype!r}; one of {', '.join(DTYPES)}", dtype=dtype)
    if layers.layer_stop - layers.layer_start > len(tensor_files):
        raise ServableCorrupt(f"{len(tensor_files)} tensors cannot be {layers.layer_stop - layers.layer_start} layers")
    torch_dtype, spread = DTYPES[dtype], spread_over(layers, holding.device, holding.device_layers)
    model = empty_decoder(slice_config(config, layers), layers, torch_dtype)
    fill_computed_buffers(model, torch.device(spread.first))
    if holding.storage_dtype not in ("", dtype):
        hold_half(model, holding.storage_dtype, dtype, lambda name: _is_quantized(name, holding))
    held_adapters = read_adapters(adapters, model, layers, holding.lora)
    quantizer = quantizer_of(holding.quantization, torch_dtype, _linear_places(model, spread))
    amend = merge_of(held_adapters)
    fill_parameters(model, layers, tensor_files, spread, on_progress, amend, quantizer.quantize)
    choice = hold_adapters(model, held_adapters, layers, holding.lora, torch_dtype)
    put_inner_codecs(model.model.layers, layers, inner_codecs)
    longest_tokens = context_tokens_max(check_servable(config))
    part = (
        LeanSlice(model, layers, torch_dtype, spread, longest_tokens, attention != "sdpa", choice)
        if is_lean(whole_config(config), torch_dtype)
        else SliceModel(model, layers, torch_dtype, spread, longest_tokens, choice)
    )
    part.quantization, part.notes = quantizer.method, quantizer.notes
    return part


def _is_quantized(module_name: str, holding: Holding) -> bool:
    return holding.quantization != NONE and is_quantized_weight(f"{module_name}.weight")


def _linear_places(model: PreTrainedModel, spread: Spread) -> list[LinearPlace]:
    """The linear layers of decoder layers and where each goes; said in numbers, so that nobody holds on to a layer."""
    return [
        LinearPlace(module.out_features, module.in_features, torch.device(spread.device_of(name)))
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and is_quantized_weight(f"{name}.weight")
    ]
