"""Random LoRA adapters as peft saves them, and what peft itself makes of a model with one. For tests only."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from swarm_stage.model.holding import AdapterSource
from transformers import AutoModelForCausalLM

from tests.models import load_reference

ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
ALL = (*ATTENTION, "gate_up_proj", "gate_proj", "up_proj", "down_proj")
_PREFIX = "base_model.model."


def make_adapter(
    base: Path,
    folder: Path,
    *,
    seed: int = 1,
    rank: int = 4,
    targets: Sequence[str] = ALL,
    strength: float = 0.2,
    **config: Any,
) -> Path:
    """Write a random adapter of the model in `base` as peft does (adapter_config.json, adapter_model.safetensors).

    strength: of what it adds, so that greedy replies differ from the base's. config: further fields of LoraConfig.
    """
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_pretrained(base, local_files_only=True)
    leaves = {name.rpartition(".")[2] for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)}
    asked = LoraConfig(
        **{"r": rank, "lora_alpha": 2 * rank, "target_modules": [t for t in targets if t in leaves], **config}
    )
    adapted = get_peft_model(model, asked)
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_A" in name or "lora_B" in name:
                parameter.normal_(0.0, strength)
            elif "magnitude" in name:
                parameter.mul_(torch.rand_like(parameter) + 0.5)
    adapted.save_pretrained(folder)
    return folder


def adapter_source(folder: Path, use: str = "chosen", model_id: str = "") -> AdapterSource:
    """An adapter as a fellow hands it to its stage, every tensor in a file of its own; named like its folder."""
    target = folder / "tensors"
    target.mkdir(exist_ok=True)
    files = {}
    for name, tensor in load_file(folder / "adapter_model.safetensors").items():
        path = target / f"{name.removeprefix(_PREFIX)}.safetensors"
        save_file({"tensor": tensor.contiguous()}, path)
        files[name.removeprefix(_PREFIX)] = str(path)
    return AdapterSource(model_id or folder.name, use, folder, files)


def edit_adapter_config(folder: Path, **changes: Any) -> None:
    """Change fields of adapter_config.json, against what the tensors say."""
    path = folder / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def peft_reference(base: Path, adapter: Path | None, dtype: torch.dtype = torch.float32) -> Any:
    """The whole model in one process with the adapter beside it, by peft; without one, the base."""
    model = load_reference(base, dtype)
    return model if adapter is None else PeftModel.from_pretrained(model, adapter).eval()


def merged_reference(base: Path, adapter: Path, dtype: torch.dtype = torch.float32) -> Any:
    """The whole model in one process with the adapter merged into its weights, by peft."""
    return PeftModel.from_pretrained(load_reference(base, dtype), adapter).merge_and_unload()
