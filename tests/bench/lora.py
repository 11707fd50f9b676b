"""What a LoRA adapter costs a step of SmolLM2, by each way to compute it. One process, one thread; no ring, no server.

    OMP_NUM_THREADS=1 .venv/bin/python -m tests.bench.lora SERVABLE [--rank 16] [--rounds 9] [--sessions 1 8]

Every round runs a few steps of each way, one after another, in an order that turns. Time is processor time of this
process, which others on the machine lengthen least. Prints a Markdown table: medians, and the range of the ratios.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import torch
from swarm_core.slices import LayerRange
from swarm_stage.model.build_slice import build_slice
from swarm_stage.model.holding import AdapterSource, Holding
from swarm_stage.model.slice_model import SliceModel

from tests.bench.lean_decode import hugging_face_folder, prompt_of
from tests.lora import ALL, adapter_source, make_adapter
from tests.models import read_config, split_tensors

ADAPTERS = 4
STEPS = 6
HELD_TOKENS = 64
PROMPT_TOKENS = 256


@dataclass
class Way:
    """One way to hold the adapters, and who chooses which: an adapter a session, 0 the base."""

    name: str
    model: SliceModel
    chosen: Sequence[int]
    step_ms: list[float] = field(default_factory=list)
    piece_ms: list[float] = field(default_factory=list)

    def measure(self) -> None:
        """A few decode steps of all sessions, and one prompt piece of the first."""
        model = self.model
        caches = [model.new_cache(0, place) for place in self.chosen]
        for cache in caches:
            model.run(model.embed(prompt_of(HELD_TOKENS)), cache, 0)
        tokens = [5] * len(caches)
        started_s = time.process_time()
        for _ in range(STEPS):
            hidden_B1D = model.embed(tokens).transpose(0, 1)
            if len(caches) == 1:
                hidden_B1D = model.run(hidden_B1D, caches[0], caches[0].length)
            else:
                hidden_B1D = model.run_batch(hidden_B1D, caches, [cache.length for cache in caches])
            tokens = model.logits_batch(hidden_B1D).argmax(-1).tolist()
        self.step_ms.append((time.process_time() - started_s) * 1e3 / STEPS)
        started_s = time.process_time()
        model.run(model.embed(prompt_of(PROMPT_TOKENS)), model.new_cache(0, self.chosen[0]), 0)
        self.piece_ms.append((time.process_time() - started_s) * 1e3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("servable", type=Path)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--sessions", type=int, nargs="+", default=[1, 8])
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        (Path(scratch) / "model").mkdir()
        folder = hugging_face_folder(options.servable, Path(scratch) / "model")
        files = split_tensors(folder, Path(scratch) / "tensors")
        sources = [
            adapter_source(
                make_adapter(
                    folder,
                    Path(scratch) / f"a{seed}",
                    seed=seed,
                    rank=options.rank,
                    targets=ALL,
                    strength=0.01,
                )
            )
            for seed in range(ADAPTERS)
        ]
        models = {
            "off": _build(folder, files, []),
            "lean": _build(folder, files, sources),
            "peft": _build(folder, files, sources, "peft"),
        }
    print(f"rank {options.rank}, {ADAPTERS} adapters; load average {os.getloadavg()[0]:.1f}")
    for sessions in options.sessions:
        one, mixed = [1] * sessions, [place % ADAPTERS + 1 for place in range(sessions)]
        ways = [Way("no adapter held", models["off"], [0] * sessions)]
        ways.append(Way("lean, held, the base chosen", models["lean"], [0] * sessions))
        for lora in ("lean", "peft"):
            ways.append(Way(f"{lora}, one adapter", models[lora], one))
            if sessions > 1:
                ways.append(Way(f"{lora}, {ADAPTERS} adapters mixed", models[lora], mixed))
        _alternate(ways, options.rounds)
        _print_table(ways, sessions)
    print(f"load average {os.getloadavg()[0]:.1f}")


def _build(folder: Path, files: dict[str, str], sources: Sequence[AdapterSource], lora: str = "lean") -> SliceModel:
    config = read_config(folder)
    layers = LayerRange(0, config["num_hidden_layers"], config["num_hidden_layers"])
    return build_slice(config, layers, files, Holding("F32", lora=lora), lambda done, total: None, sources)


def _alternate(ways: Sequence[Way], rounds: int) -> None:
    """The first round warms up and is dropped."""
    for turn in range(rounds + 1):
        for place in range(len(ways)):
            ways[(place + turn) % len(ways)].measure()
    for way in ways:
        del way.step_ms[0], way.piece_ms[0]


def _print_table(ways: Sequence[Way], sessions: int) -> None:
    print(f"\n| {sessions} sessions | a step, ms | x | every round | a piece of {PROMPT_TOKENS}, ms | x |")
    print("|---|---|---|---|---|---|")
    for way in ways:
        steps = [mine / off for mine, off in zip(way.step_ms, ways[0].step_ms, strict=True)]
        pieces = [mine / off for mine, off in zip(way.piece_ms, ways[0].piece_ms, strict=True)]
        print(
            f"| {way.name} | {median(way.step_ms):.1f} | {median(steps):.2f} | {min(steps):.2f} to {max(steps):.2f} | "
            f"{median(way.piece_ms):.0f} | {median(pieces):.2f} |"
        )


if __name__ == "__main__":
    main()
