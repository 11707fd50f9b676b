"""`python -m tests.bench.parity [--model FOLDER]`: greedy replies of slices against one transformers process.

Every family x quantisation x stages: tokens that differ beyond a tie, of all compared. Prints a Markdown table.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from swarm_core.quantization import INT8, NF4, NONE

from tests.bench import conditions
from tests.models import FAMILIES, VOCABULARY, load_reference, make_tiny_model, read_config, reference_run
from tests.unit.stage_model.quantised import build_quantised, load_quantised_reference, reference_by_token
from tests.unit.stage_model.slices import TIE_GAP, run_greedy

STAGES = (1, 2, 3, 4)
PROMPTS = (1, 17, 120)
NEW_TOKENS = 24
# A width of whole NF4 blocks, as every real model has.
WIDE = {"hidden_size": 64, "intermediate_size": 128}


def reference_replies(
    folder: Path, method: str, prompts: Sequence[Sequence[int]]
) -> list[tuple[list[int], list[torch.Tensor]]]:
    """What transformers says in one process: tokens, and the logits each was chosen from.

    int8 is asked one position at a time: bitsandbytes lets the positions of one call change each other's outliers.
    """
    if method == NONE:
        model = load_reference(folder)
        return [reference_run(model, list(prompt), NEW_TOKENS) for prompt in prompts]
    model = load_quantised_reference(folder, method)
    if method == INT8:
        return [reference_by_token(model, prompt, NEW_TOKENS) for prompt in prompts]
    return [reference_run(model, list(prompt), NEW_TOKENS) for prompt in prompts]


def compare(folder: Path, method: str, vocabulary: int) -> list[tuple[int, int, int]]:
    """For each number of stages: tokens compared, ties met, and tokens that differ without one."""
    draws = [torch.Generator().manual_seed(length) for length in PROMPTS]
    prompts = [torch.randint(3, vocabulary, (n,), generator=g).tolist() for n, g in zip(PROMPTS, draws, strict=True)]
    wanted = reference_replies(folder, method, prompts)
    rows = []
    for stages in STAGES:
        slices = build_quantised(folder, method, stages)
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


if __name__ == "__main__":
    sys.exit(main())
