"""The modules of a slice without their weights. What a stage does not hold is never made."""

from typing import Any

import torch
from swarm_core.errors import ServableCorrupt
from swarm_core.slices import LayerRange
from torch import nn
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, PreTrainedConfig, PreTrainedModel

# Rotary frequencies and embedding scales are a few hundred numbers; more is a hostile config.
_COMPUTED_ELEMENTS_MAX = 1 << 22


def causal_lm_class(config: PreTrainedConfig) -> Any:
    """transformers' class of the whole model, head included, for a config."""
    return MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]


def empty_decoder(cut: PreTrainedConfig, layers: LayerRange, dtype: torch.dtype) -> PreTrainedModel:
    """A CausalLM of the sliced config on the meta device: no weights, no embeddings or head this stage lacks.

    Attention is what transformers picks for the family (eager where sdpa cannot express its soft caps).
    Raises ServableCorrupt when the config describes no model.
    """
    try:
        with torch.device("meta"):
            model = causal_lm_class(cut)._from_config(cut, dtype=dtype)
    except Exception as error:  # whatever a hostile number provokes
        raise ServableCorrupt(f"config.json describes no {cut.model_type} model: {error}") from error
    decoder = model.model
    if not layers.is_first:
        decoder.embed_tokens = None
        if hasattr(decoder, "embedding_multiplier"):
            decoder.embedding_multiplier = 1.0  # Granite scales in its forward; stage 0 has done it
    if not layers.is_last:
        decoder.norm = nn.Identity()
        model.lm_head = None
    return model.eval()


def fill_computed_buffers(model: PreTrainedModel, device: torch.device) -> None:
    """Compute what a checkpoint does not store (rotary frequencies, embedding scales), as from_pretrained does."""
    for module in model.modules():
        buffers = {name: buffer for name, buffer in module.named_buffers(recurse=False) if buffer.is_meta}
        for name, buffer in buffers.items():
            if buffer.numel() > _COMPUTED_ELEMENTS_MAX:
                raise ServableCorrupt(f"config.json asks for {buffer.numel()} rotary frequencies")
            setattr(module, name, torch.full_like(buffer, torch.nan, device=device))
        if buffers:
            with torch.no_grad():
                model._init_weights(module)  # the parameters are still on the meta device, so only buffers are set
        for name in buffers:
            assert not getattr(module, name).isnan().any(), f"{name} of {type(module).__name__} was not computed"
