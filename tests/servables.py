"""Servables as training leaves them, made from a checkpoint: shards of each stage, LoRA adapters. No torch."""

import json
import shutil
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file
from swarm_core.slices import EMBEDDING, FINAL_NORM, HEAD, layer_of

_TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja")
_PERTURBED = 0.02  # of a tensor's own spread: other replies, still words


def read_tensors(folder: Path) -> dict[str, np.ndarray]:
    """Every tensor of a Hugging Face folder in float32 or float16. BF16, which numpy does not have, is not read."""
    return {name: tensor for file in sorted(folder.glob("*.safetensors")) for name, tensor in load_file(file).items()}


def perturbed(tensors: dict[str, np.ndarray], seed: int) -> dict[str, np.ndarray]:
    """The same model after some training: every tensor a little different, the same for the same seed."""
    random = np.random.default_rng(seed)
    return {
        name: tensor + (random.standard_normal(tensor.shape) * _PERTURBED * (tensor.std() or 1.0)).astype(tensor.dtype)
        for name, tensor in sorted(tensors.items())
    }


def make_perturbed_folder(checkpoint_dir: Path, out: Path, perturb_seed: int) -> Path:
    """A plain checkpoint with the weights of make_split_folder(..., perturb_seed): what one process compares with."""
    shutil.copytree(checkpoint_dir, out, ignore=shutil.ignore_patterns("*.safetensors*"))
    save_file(perturbed(read_tensors(checkpoint_dir), perturb_seed), out / "model.safetensors", {"format": "pt"})
    return out


def make_split_folder(
    checkpoint_dir: Path,
    out: Path,
    boundaries: Sequence[int],
    perturb_seed: int | None = None,
    codecs: Sequence[str] | None = None,
    *,
    recorded: bool = True,
    local_names: bool = False,
    quantization: Any = None,
) -> Path:
    """Cut a checkpoint as training exports it: <out>/{servable.json, config.json, tokenizer/, shards/stage-*/}.

    boundaries: first layer of every stage but the first. codecs: one a boundary. recorded: whether servable.json tells
    the boundaries. local_names: each shard counts its layers from 0. quantization: as servable.json has it.
    """
    tensors = read_tensors(checkpoint_dir)
    if perturb_seed is not None:
        tensors = perturbed(tensors, perturb_seed)
    for stage, (start, stop) in enumerate(_cuts(tensors, boundaries)):
        shard = {
            _local(name, start) if local_names else name: tensor
            for name, tensor in tensors.items()
            if _is_of(name, start, stop, stop == _layer_count(tensors))
        }
        place = out / f"shards/stage-{stage}"
        place.mkdir(parents=True)
        save_file(shard, place / "weights.safetensors", {"format": "pt"})
    for name in ("config.json", "generation_config.json"):
        if (checkpoint_dir / name).exists():
            shutil.copy(checkpoint_dir / name, out / name)
    (out / "tokenizer").mkdir()
    for name in _TOKENIZER:
        if (checkpoint_dir / name).exists():
            shutil.copy(checkpoint_dir / name, out / "tokenizer" / name)
    split: dict[str, Any] = {"stage_count": len(boundaries) + 1}
    if recorded:
        split["boundaries"] = list(boundaries)
    if codecs is not None:
        split["codecs"] = list(codecs)
    _write_export(out, split, quantization)
    return out


def make_adapter_folder(
    checkpoint_dir: Path,
    out: Path,
    rank: int,
    seed: int,
    targets: Sequence[str] = ("q_proj", "v_proj"),
    *,
    base: str = "",
    alpha: float | None = None,
    strength: float = 0.3,
    **config: Any,
) -> Path:
    """A LoRA adapter in PEFT's format (adapter_config.json, adapter_model.safetensors) for a checkpoint.

    base: what base_model_name_or_path says; by default the checkpoint's folder. alpha: twice the rank by default.
    strength: how far B is from 0, so that replies differ. config: further keys of adapter_config.json.
    """
    out.mkdir(parents=True)
    save_file(adapter_tensors(checkpoint_dir, rank, seed, targets, strength), out / "adapter_model.safetensors")
    _write_adapter_config(out, rank, targets, base or str(checkpoint_dir), alpha, config)
    return out


def make_split_adapter_folder(
    checkpoint_dir: Path,
    out: Path,
    boundaries: Sequence[int],
    rank: int,
    seed: int,
    targets: Sequence[str] = ("q_proj", "v_proj"),
    *,
    base: str = "",
    codecs: Sequence[str] | None = None,
    quantization: Any = None,
) -> Path:
    """The adapter of make_adapter_folder as training exports it, an adapter beside each stage's shard."""
    tensors = adapter_tensors(checkpoint_dir, rank, seed, targets)
    for stage, (start, stop) in enumerate(_cuts(read_tensors(checkpoint_dir), boundaries)):
        place = out / f"shards/stage-{stage}"
        place.mkdir(parents=True)
        mine = {name: tensor for name, tensor in tensors.items() if start <= _adapted_layer(name) < stop}
        save_file(mine, place / "adapter_model.safetensors")
        _write_adapter_config(place, rank, targets, base or str(checkpoint_dir), None, {})
    split: dict[str, Any] = {"stage_count": len(boundaries) + 1, "boundaries": list(boundaries)}
    if codecs is not None:
        split["codecs"] = list(codecs)
    _write_export(out, split, quantization, base=base)
    return out


def adapter_tensors(
    checkpoint_dir: Path, rank: int, seed: int, targets: Sequence[str], strength: float = 0.3
) -> dict[str, np.ndarray]:
    """A and B of every target of every layer, float32, under the names PEFT saves them with."""
    random = np.random.default_rng(seed)
    pairs: dict[str, np.ndarray] = {}
    for name, tensor in sorted(read_tensors(checkpoint_dir).items()):
        module = name.removesuffix(".weight")
        if layer_of(name) is None or module.rpartition(".")[2] not in targets:
            continue
        outputs, inputs = tensor.shape
        a = random.standard_normal((rank, inputs)) / np.sqrt(inputs)
        b = random.standard_normal((outputs, rank)) * strength
        pairs[f"base_model.model.{module}.lora_A.weight"] = a.astype(np.float32)
        pairs[f"base_model.model.{module}.lora_B.weight"] = b.astype(np.float32)
    return pairs


def _write_adapter_config(
    folder: Path, rank: int, targets: Sequence[str], base: str, alpha: float | None, config: dict[str, Any]
) -> None:
    document = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "bias": "none",
        "r": rank,
        "lora_alpha": 2 * rank if alpha is None else alpha,
        "lora_dropout": 0.05,
        "target_modules": list(targets),
        "modules_to_save": None,
        "inference_mode": True,
        **config,
    }
    (folder / "adapter_config.json").write_text(json.dumps(document))


def _write_export(out: Path, split: dict[str, Any], quantization: Any, **facts: Any) -> None:
    document = {"split": split, **({"quantization": quantization} if quantization else {}), **facts}
    (out / "servable.json").write_text(json.dumps(document))


def _layer_count(tensors: dict[str, np.ndarray]) -> int:
    return 1 + max(layer for name in tensors if (layer := layer_of(name)) is not None)


def _cuts(tensors: dict[str, np.ndarray], boundaries: Sequence[int]) -> Iterator[tuple[int, int]]:
    return pairwise((0, *boundaries, _layer_count(tensors)))


def _is_of(name: str, start: int, stop: int, is_last: bool) -> bool:
    layer = layer_of(name)
    if layer is not None:
        return start <= layer < stop
    return is_last if name in (FINAL_NORM, HEAD) else name == EMBEDDING and start == 0


def _local(name: str, start: int) -> str:
    layer = layer_of(name)
    return name if layer is None else name.replace(f".layers.{layer}.", f".layers.{layer - start}.", 1)


def _adapted_layer(name: str) -> int:
    layer = layer_of(name.removeprefix("base_model.model."))
    assert layer is not None
    return layer
