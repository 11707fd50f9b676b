"""What the tensors of a decoder and of a LoRA adapter are called. Pure: names only."""

import re

EMBEDDING = "model.embed_tokens.weight"
FINAL_NORM = "model.norm.weight"
HEAD = "lm_head.weight"
LORA_A = ".lora_A.weight"  # [rank, inputs]
LORA_B = ".lora_B.weight"  # [outputs, rank]
LORA_MAGNITUDE = ".lora_magnitude_vector"  # [outputs]; of DoRA alone
_LAYER = re.compile(r"model\.layers\.(0|[1-9][0-9]{0,5})\.", re.ASCII)


def layer_of(tensor: str) -> int | None:
    """The layer a tensor belongs to; None for embeddings, final norm and head."""
    match = _LAYER.match(tensor)
    return int(match.group(1)) if match else None


def adapted_module(tensor: str) -> tuple[str, str] | None:
    """(module path, which of the LORA_ endings) of an adapter's tensor; None when it is none."""
    for ending in (LORA_A, LORA_B, LORA_MAGNITUDE):
        if tensor.endswith(ending):
            return tensor.removesuffix(ending), ending
    return None
