"""`python -m tests.bench.parity [--model FOLDER]`: greedy replies of slices against one transformers process.

Every family x quantisation x stages: tokens that differ beyond a tie, of all compared. Prints a Markdown table.
"""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from swarm_core.quantization import INT8, NF4, NONE
from swarm_stage.model.build_slice import build_slice
from swarm_stage.model.holding import Holding
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

from tests.bench import conditions
from tests.models import (
    FAMILIES,
    VOCABULARY,
    even_ranges,
    load_reference,
    make_tiny_model,
    read_config,
    reference_run,
    split_tensors,
)
from tests.unit.stage_model.slices import TIE_GAP, run_greedy

STAGES = (1, 2, 3, 4)
PROMPTS = (1, 17, 120)
NEW_TOKENS = 24
# A width of whole NF4 blocks, as every real model has.
WIDE = {"hidden_size": 64, "intermediate_size": 128}


def quantised_reference(folder: Path, method: str) -> Any:
    """The whole model as from_pretrained loads it quantised, computing in float32."""
    if method == NONE:
        return load_reference(folder)
    config = (
        BitsAndBytesConfig(load_in_8bit=True)
        if method == INT8
        else BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type=NF4, bnb_4bit_compute_dtype=torch.float32)
    )
    return AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, quantization_config=config, local_files_only=True, device_map="cpu"
    ).eval()


def compare(folder: Path, method: str, vocabulary: int) -> list[tuple[int, int, int]]:
    """For each number of stages: tokens compared, ties met, and tokens that differ without one."""
    reference, config = quantised_reference(folder, method), read_config(folder)
    files = split_tensors(folder, folder / "tensors")
    draws = [torch.Generator().manual_seed(length) for length in PROMPTS]
    prompts = [torch.randint(3, vocabulary, (n,), generator=g).tolist() for n, g in zip(PROMPTS, draws, strict=True)]
    wanted = [reference_run(reference, prompt, NEW_TOKENS) for prompt in prompts]
    rows = []
    for stages in STAGES:
        ranges = even_ranges(config["num_hidden_layers"], stages)
        slices = [build_slice(config, one, files, Holding("F32", quantization=method), _say_nothing) for one in ranges]
        compared = ties = wrong = 0
        for prompt, (tokens, logits) in zip(prompts, wanted, strict=True):
            ours, _ = run_greedy(slices, prompt, NEW_TOKENS)
            for step, (got, want) in enumerate(zip(ours, tokens, strict=True)):
                compared += 1
                if got != want:
                    is_tie = float(logits[step][want] - logits[step][got]) < TIE_GAP
                    ties, wrong = ties + is_tie, wrong + (not is_tie)
                    break  # what follows a difference is another text
        rows.append((compared, ties, wrong))
    return rows


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, help="also a real model: a Hugging Face folder with float32 safetensors")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print("\n".join(conditions.machine()), end="\n\n")
    print("| model | weights | " + " | ".join(f"{n} stage{'s' if n > 1 else ''}" for n in STAGES) + " |")
    print("|---" * (2 + len(STAGES)) + "|")
    with tempfile.TemporaryDirectory() as scratch:
        folders = {one: make_tiny_model(one, Path(scratch) / one, **WIDE) for one in FAMILIES}
        if arguments.model:
            folders[arguments.model.name] = arguments.model
        for name, folder in folders.items():
            for method in (NONE, NF4, INT8):
                vocabulary = read_config(folder)["vocab_size"] if folder == arguments.model else VOCABULARY
                cells = [
                    f"{wrong} of {n}" + (f", {ties} ties" if ties else "")
                    for n, ties, wrong in compare(folder, method, vocabulary)
                ]
                print(f"| {name} | {method} | " + " | ".join(cells) + " |", flush=True)


def _say_nothing(done: int, total: int) -> None:
    """Progress nobody watches."""


if __name__ == "__main__":
    sys.exit(main())
