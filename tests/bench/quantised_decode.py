"""SmolLM2 held in few bits: what a decode step, a prompt and a load take, against full precision and bitsandbytes' own.

    OMP_NUM_THREADS=1 .venv/bin/python -m tests.bench.quantised_decode MODELS_ROOT [--pairs 3]

All in one process, one thread. Every round takes each in turn; figures are medians of rounds, ratios are of pairs
within a round. Tokens are compared too: ours against transformers' over the same bytes.
"""

import argparse
import logging
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from swarm_core.quantization import INT4_FAST, INT8, NF4, NONE
from swarm_core.slices import LayerRange
from swarm_stage.model.build_slice import build_slice
from swarm_stage.model.holding import Holding
from swarm_stage.model.slice_model import SliceModel
from swarm_stage.model.weights import is_finite
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, DynamicCache

from tests.bench import conditions
from tests.bench.lean_decode import hugging_face_folder
from tests.models import read_config, split_tensors

MODEL = "SmolLM2-135M-Instruct"
PROMPT = [(7919 * (index + 3)) % 49_000 + 20 for index in range(64)]
STEPS, STREAMS = 12, 8


def seconds(work: Callable[[], object]) -> float:
    """How long it takes."""
    started_s = time.perf_counter()
    work()
    return time.perf_counter() - started_s


class Ours:
    """A whole model as one slice."""

    def __init__(self, part: SliceModel) -> None:
        self.part = part
        self.tokens: list[int] = []

    def times_ms(self) -> dict[str, float]:
        """A step of one stream and of eight, and a prompt of 64 tokens."""
        part, caches = self.part, [self.part.new_cache() for _ in range(STREAMS)]
        prompt_s = seconds(lambda: part.run(part.embed(PROMPT), caches[0], 0))
        self.tokens = [int(part.logits(part.run(part.embed(PROMPT), caches[0], 0)).argmax())]

        def one() -> None:
            for step in range(STEPS):
                hidden = part.run(part.embed(self.tokens[-1:]), caches[0], len(PROMPT) + step)
                self.tokens.append(int(part.logits(hidden).argmax()))

        step_s = seconds(one) / STEPS
        for cache in caches:
            cache.crop(0)
            part.run(part.embed(PROMPT[:8]), cache, 0)

        def eight() -> None:
            for step in range(4):
                rows = part.embed(PROMPT[:STREAMS]).transpose(0, 1)
                part.logits_batch(part.run_batch(rows, caches, [8 + step] * STREAMS))

        return {"1 stream": step_s * 1e3, "8 streams": seconds(eight) / 4 * 1e3, "64 tokens": prompt_s * 1e3}


class Theirs:
    """transformers over bitsandbytes' layers."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.tokens: list[int] = []

    @torch.inference_mode()
    def times_ms(self) -> dict[str, float]:
        """As ours, one stream."""
        cache = DynamicCache(config=self.model.config)

        def run(ids: list[int]) -> int:
            logits = self.model(torch.tensor([ids]), past_key_values=cache, use_cache=True, logits_to_keep=1).logits
            return int(logits[0, -1].argmax())

        started_s = time.perf_counter()
        self.tokens = [run(PROMPT)]
        prompt_s = time.perf_counter() - started_s

        def one() -> None:
            for _ in range(STEPS):
                self.tokens.append(run(self.tokens[-1:]))

        return {"1 stream": seconds(one) / STEPS * 1e3, "64 tokens": prompt_s * 1e3}


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models_root", type=Path)
    parser.add_argument("--pairs", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    print("\n".join(conditions.machine()), end="\n\n")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        hugging_face_folder(arguments.models_root / MODEL, folder)
        measure(folder, arguments.pairs)


def measure(folder: Path, pairs: int) -> None:
    """Load each, time all in turn, compare tokens."""
    config, layers = read_config(folder), LayerRange(0, 30, 30)
    candidates: dict[str, Ours | Theirs] = {}
    with tempfile.TemporaryDirectory() as scratch:
        files = split_tensors(folder, Path(scratch))
        for method in (NONE, NF4, INT8, INT4_FAST):
            holding = Holding("F32", quantization=method)
            started_s = time.perf_counter()
            part = build_slice(config, layers, files, holding, lambda done, total: None)
            print(f"{method}: loaded in {time.perf_counter() - started_s:.1f} s, {part.weight_bytes / 1e6:.1f} MB")
            candidates[method] = Ours(part)
    nf4 = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type=NF4, bnb_4bit_compute_dtype=torch.float32)
    for method, quantisation in ((NF4, nf4), (INT8, BitsAndBytesConfig(load_in_8bit=True))):
        started_s = time.perf_counter()
        model = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, quantization_config=quantisation, local_files_only=True, device_map="cpu"
        ).eval()
        print(f"{method} by from_pretrained: loaded in {time.perf_counter() - started_s:.1f} s")
        candidates[f"{method} by bitsandbytes"] = Theirs(model)
    rounds = [{name: one.times_ms() for name, one in candidates.items()} for _ in range(pairs)]
    print("\n| weights | 1 stream, ms | 8 streams, ms | 64 tokens of a prompt, ms | 1 stream against full |")
    print("|---|---|---|---|---|")
    for name in candidates:
        cells = [
            f"{median(times[name][what] for times in rounds):.1f}" if what in rounds[0][name] else "-"
            for what in ("1 stream", "8 streams", "64 tokens")
        ]
        ratios = [times[name]["1 stream"] / times[NONE]["1 stream"] for times in rounds]
        print(f"| {name} | {' | '.join(cells)} | {median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}) |")
    for method in (NF4, INT8):
        same = candidates[method].tokens == candidates[f"{method} by bitsandbytes"].tokens
        print(f"\n{method}: {STEPS + 1} tokens {'as' if same else 'NOT as'} from_pretrained's")
    head = torch.randn(49152, 576)
    print(
        f"\nextremes of {head.nbytes / 1e6:.0f} MB: {min(seconds(lambda: is_finite(head)) for _ in range(5)) * 1e3:.1f}"
    )
    print(f"isfinite().all(): {min(seconds(lambda: head.isfinite().all()) for _ in range(5)) * 1e3:.1f} ms")


if __name__ == "__main__":
    main()
