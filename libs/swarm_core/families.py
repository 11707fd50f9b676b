"""Which model families are served, and what their config.json means by what it leaves out. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Family:
    """The defaults of a family's transformers config class (5.24), for keys a config.json does not carry.

    head_dim None: hidden size / attention heads. kv_heads None: as many as attention heads.
    """

    is_tied: bool = False
    head_dim: int | None = None
    kv_heads: int | None = None


FAMILIES: Mapping[str, Family] = {
    "cohere": Family(is_tied=True),
    "cohere2": Family(is_tied=True),
    "llama": Family(),
    "mistral": Family(kv_heads=8),
    "qwen2": Family(kv_heads=32),
    "qwen3": Family(head_dim=128, kv_heads=32),
    "gemma": Family(is_tied=True, head_dim=256, kv_heads=16),
    "gemma2": Family(is_tied=True, head_dim=256, kv_heads=4),
    "gemma3_text": Family(is_tied=True, head_dim=256, kv_heads=4),
    "phi3": Family(),
    "smollm3": Family(is_tied=True, kv_heads=4),
    "olmo2": Family(),
    "granite": Family(),
}
SERVED_MODEL_TYPES: tuple[str, ...] = tuple(FAMILIES)
