"""Slices of tiny models held in few bits, and what transformers itself makes of the same files."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from swarm_core.quantization import INT8, NF4
from swarm_stage.model.build_slice import build_slice
from swarm_stage.model.holding import Holding
from swarm_stage.model.slice_model import SliceModel
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, DynamicCache

from tests.models import even_ranges, read_config, split_tensors

TORCH_DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}


def build_quantised(folder: Path, method: str, stage_count: int, dtype: str = "F32") -> list[SliceModel]:
    """The model in `folder`, cut into `stage_count` slices."""
    config, files = read_config(folder), split_tensors(folder, folder / "tensors")
    ranges = even_ranges(config["num_hidden_layers"], stage_count)
    return [build_slice(config, one, files, Holding(dtype, quantization=method), _say_nothing) for one in ranges]


def load_quantised_reference(folder: Path, method: str, dtype: str = "F32") -> Any:
    """The whole model as a quantised from_pretrained loads it."""
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)  # it says for every product that it casts
    torch_dtype = TORCH_DTYPES[dtype]
    nf4 = {"bnb_4bit_quant_type": NF4, "bnb_4bit_use_double_quant": False, "bnb_4bit_compute_dtype": torch_dtype}
    config = BitsAndBytesConfig(load_in_8bit=True) if method == INT8 else BitsAndBytesConfig(load_in_4bit=True, **nf4)
    return AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch_dtype, quantization_config=config, local_files_only=True, device_map="cpu"
    ).eval()


@torch.inference_mode()
def reference_by_token(model: Any, prompt_ids: Sequence[int], new_tokens: int) -> tuple[list[int], list[torch.Tensor]]:
    """A greedy reply and the logits_V behind each token, one position at a time.

    bitsandbytes lets rows of one int8 product change each other's outliers: only alone does a position give what it is.
    """
    cache, ids, logits = DynamicCache(config=model.config), list(prompt_ids), []
    for pos in range(len(prompt_ids) + new_tokens - 1):
        logits_V = model(torch.tensor([[ids[pos]]]), past_key_values=cache, use_cache=True).logits[0, -1].float()
        if pos >= len(prompt_ids) - 1:
            logits.append(logits_V)
            ids.append(int(logits_V.argmax()))
    return ids[len(prompt_ids) :], logits


def _say_nothing(done: int, total: int) -> None:
    """Progress nobody watches."""
