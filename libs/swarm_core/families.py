"""Which model families are served, and what their config.json means by what it leaves out. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Family:
    """The defaults of a family's transformers config class (5.24), for keys a config.json does not carry.

    architecture: what its classes' names begin with. head_dim None: hidden size / attention heads. kv_heads None: as
    many as attention heads.
    """

    architecture: str
    is_tied: bool = False
    head_dim: int | None = None
    kv_heads: int | None = None


FAMILIES: Mapping[str, Family] = {
    "cohere": Family("Cohere", is_tied=True),
    "cohere2": Family("Cohere2", is_tied=True),
    "llama": Family("Llama"),
    "mistral": Family("Mistral", kv_heads=8),
    "qwen2": Family("Qwen2", kv_heads=32),
    "qwen3": Family("Qwen3", head_dim=128, kv_heads=32),
    "gemma": Family("Gemma", is_tied=True, head_dim=256, kv_heads=16),
    "gemma2": Family("Gemma2", is_tied=True, head_dim=256, kv_heads=4),
    "gemma3_text": Family("Gemma3", is_tied=True, head_dim=256, kv_heads=4),
    "phi3": Family("Phi3"),
    "smollm3": Family("SmolLM3", is_tied=True, kv_heads=4),
    "olmo2": Family("Olmo2"),
    "granite": Family("Granite"),
}
SERVED_MODEL_TYPES: tuple[str, ...] = tuple(FAMILIES)
_KINDS = ("ForCausalLM", "Model", "TextModel")  # with its head, or saved from the base model


def other_architecture(config: Mapping[str, Any]) -> str | None:
    """What a config of a served model type says it is when that is no text decoder of the type; None when it is one.

    A config that names no architecture is taken by its type. The letters' case says nothing (LLaMAForCausalLM).
    """
    named = config.get("architectures")
    if named is None or named == []:
        return None
    served = {f"{FAMILIES[config['model_type']].architecture}{kind}".lower() for kind in _KINDS}
    names = named if isinstance(named, list) else [named]
    if all(isinstance(name, str) and name.lower() in served for name in names):
        return None
    return str(named)[:200]
