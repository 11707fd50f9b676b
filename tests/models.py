"""Tiny random models of every served family, and what transformers itself generates with them. For tests only."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from swarm_core.slices import LayerRange
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

VOCABULARY = 320
_BASE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 48,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 1024,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
# What makes a family itself; a key None here is left out.
_FAMILY: dict[str, dict[str, Any]] = {
    "cohere": {"logit_scale": 0.25, "use_qk_norm": True, "head_dim": None},
    "cohere2": {"logit_scale": 0.25, "sliding_window": 4096, "sliding_window_pattern": 2},
    "gemma": {"hidden_act": "gelu_pytorch_tanh"},
    "gemma2": {"query_pre_attn_scalar": 16, "final_logit_softcapping": 30.0, "attn_logit_softcapping": 50.0},
    "gemma3_text": {"query_pre_attn_scalar": 1, "sliding_window_pattern": 3},
    "granite": {
        "embedding_multiplier": 3.0,
        "logits_scaling": 2.0,
        "residual_multiplier": 0.5,
        "attention_multiplier": 0.2,
        "head_dim": None,
    },
    "llama": {},
    "mistral": {"sliding_window": None},
    "olmo2": {"head_dim": None},
    "phi3": {"head_dim": None},
    "qwen2": {"head_dim": None},
    "qwen3": {},
    "smollm3": {"no_rope_layer_interval": 2, "head_dim": None},
}
# Families with a sliding window, and what else switches it on.
SLIDING: dict[str, dict[str, Any]] = {
    "cohere2": {},
    "gemma2": {},
    "gemma3_text": {},
    "mistral": {},
    "phi3": {},
    "qwen2": {"use_sliding_window": True, "max_window_layers": 1},
    "qwen3": {"use_sliding_window": True, "max_window_layers": 1},
    "smollm3": {"use_sliding_window": True},
}
# Families that scale their embeddings up would repeat the prompt's last token for ever.
_EMBEDDING_STD = {"gemma": 0.05, "gemma2": 0.05, "gemma3_text": 0.05, "granite": 0.1, "olmo2": 0.2}
FAMILIES = tuple(sorted(_FAMILY))


def make_tiny_model(
    family: str,
    folder: Path,
    *,
    layers: int = 4,
    sliding_window: int | None = None,
    tied: bool = True,
    seed: int = 0,
    **overrides: Any,
) -> Path:
    """Write a random model of `family` as a Hugging Face folder (config.json, float32 model.safetensors), no tokenizer.

    sliding_window: tokens, for families of SLIDING only. Weights are scaled so that greedy replies vary.
    """
    asked = {**_BASE, **_FAMILY[family], "num_hidden_layers": layers, "tie_word_embeddings": tied}
    if sliding_window is not None:
        asked |= {**SLIDING[family], "sliding_window": sliding_window}
    asked |= overrides
    config = CONFIG_MAPPING[family](**{key: value for key, value in asked.items() if value is not None})
    if family == "mistral" and sliding_window is None:
        config.sliding_window = None  # its default is a window
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                parameter.normal_(0.0, _EMBEDDING_STD.get(family, 0.5) if "embed" in name else 0.25)
            else:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(folder)
    return folder


def reference_greedy(folder: Path, prompt_ids: list[int], new_tokens: int) -> list[int]:
    """What `generate(do_sample=False)` of transformers adds to the prompt in one process; end tokens are ignored."""
    return reference_run(load_reference(folder), prompt_ids, new_tokens)[0]


def load_reference(folder: Path, dtype: torch.dtype = torch.float32) -> Any:
    """The whole model as from_pretrained loads it, its weights moved to aligned memory.

    from_pretrained leaves float32 weights as views of the file, at addresses for which matrix kernels round
    differently (seen: 3e-5 in the logits of these models).
    """
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, local_files_only=True).eval()
    for parameter in model.parameters():
        parameter.data = parameter.data.clone()
    return model


def reference_run(model: Any, prompt_ids: list[int], new_tokens: int) -> tuple[list[int], list[torch.Tensor]]:
    """The tokens generated and the logits_V each was chosen from."""
    generated = model.generate(
        torch.tensor([prompt_ids]),
        attention_mask=torch.ones(1, len(prompt_ids), dtype=torch.long),
        do_sample=False,
        max_new_tokens=new_tokens,
        min_new_tokens=new_tokens,
        eos_token_id=None,
        output_logits=True,
        return_dict_in_generate=True,
    )
    return generated.sequences[0, len(prompt_ids) :].tolist(), [logits[0] for logits in generated.logits]


def read_config(folder: Path) -> dict[str, Any]:
    """The parsed config.json."""
    return json.loads((folder / "config.json").read_text())


def split_tensors(folder: Path, target: Path) -> dict[str, str]:
    """The model's tensors as single-tensor files, as a fellow's cache holds them: name -> path."""
    target.mkdir(parents=True, exist_ok=True)
    files = {}
    for source in sorted(folder.glob("*.safetensors")):
        for name, tensor in load_file(source).items():
            path = target / f"{name}.safetensors"
            save_file({"tensor": tensor.contiguous()}, path)
            files[name] = str(path)
    return files


def even_ranges(layer_count: int, stage_count: int) -> list[LayerRange]:
    """`stage_count` slices of about equal size, in order."""
    cuts = [layer_count * stage // stage_count for stage in range(stage_count + 1)]
    return [LayerRange(start, stop, layer_count) for start, stop in pairwise(cuts)]
