"""Tiny checkpoints as training tools write them: config.json, a tokenizer, safetensors. No torch."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

VOCABULARY, HIDDEN, LAYERS = 24, 8, 2
LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": LAYERS,
    "hidden_size": HIDDEN,
    "intermediate_size": 16,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 128,
    "tie_word_embeddings": True,
    "_name_or_path": "/home/somebody/secret",
}


def llama_tensors(seed: int = 0, tied: bool = True) -> dict[str, np.ndarray]:
    """Random weights under the names of the transformers library."""
    random = np.random.default_rng(seed)
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (VOCABULARY, HIDDEN),
        "model.norm.weight": (HIDDEN,),
    }
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        shapes |= {
            f"{at}self_attn.q_proj.weight": (HIDDEN, HIDDEN),
            f"{at}self_attn.k_proj.weight": (HIDDEN // 2, HIDDEN),
            f"{at}mlp.down_proj.weight": (HIDDEN, 16),
            f"{at}input_layernorm.weight": (HIDDEN,),
        }
    if not tied:
        shapes["lm_head.weight"] = (VOCABULARY, HIDDEN)
    return {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def write_checkpoint(
    folder: Path,
    config: dict[str, Any] | None = None,
    tensors: dict[str, np.ndarray] | None = None,
    shards: int = 1,
) -> Path:
    """Write a checkpoint; config replaces keys of LLAMA (None drops one), shards above 1 write an index too."""
    folder.mkdir(parents=True, exist_ok=True)
    document = {key: fact for key, fact in (LLAMA | (config or {})).items() if fact is not None}
    (folder / "config.json").write_text(json.dumps(document))
    (folder / "generation_config.json").write_text('{"eos_token_id": 2, "_from_model_config": true}')
    (folder / "tokenizer.json").write_text('{"model": {"type": "BPE", "vocab": {}}}')
    (folder / "tokenizer_config.json").write_text('{"chat_template": "{{ messages }}"}')
    tensors = llama_tensors() if tensors is None else tensors
    if shards == 1:
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        return folder
    names = sorted(tensors)
    weight_map = {}
    for shard in range(shards):
        file = f"model-{shard + 1:05d}-of-{shards:05d}.safetensors"
        mine = {name: tensors[name] for name in names[shard::shards]}
        save_file(mine, folder / file)
        weight_map |= dict.fromkeys(mine, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return folder


def nobody_listens(step: str, done: int, total: int) -> None:
    """Progress nobody wants."""


def names_in(folder: Path) -> list[str]:
    """What lies in a folder, hidden ones included."""
    return sorted(path.name for path in folder.iterdir())


async def until(claim: Callable[[], bool]) -> None:
    """Wait until a claim holds; fails after 20 s."""
    async with asyncio.timeout(20):
        while not claim():
            await asyncio.sleep(0.02)
