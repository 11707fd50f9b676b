"""A reply that goes on after a stage was lost: rebuilding that stage against computing everything again, side by side.

    OMP_NUM_THREADS=1 .venv/bin/python -m tests.bench.resume MODELS_ROOT [--pairs 3]

Three stages of SmolLM2 in one thread, links in memory: what is measured is CPU time until the next token, of all stages
together. In a ring of three machines pieces of a replay overlap, so that it takes a third of that at best; a rebuild
works on one machine. Prints the median of alternating pairs.
"""

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

from silentswarm.core.v1.generation_pb2 import Sampling
from swarm_stage.model.build_slice import build_slice
from swarm_stage.model.holding import Holding
from swarm_stage.serve.torch_compute import TorchCompute

from tests.bench.lean_decode import MODEL, hugging_face_folder, prompt_of
from tests.models import even_ranges, read_config, split_tensors
from tests.unit.stage_engine.memory_ring import MemoryRing

STAGES = 3
PROMPTS = (32, 256, 1024)
TOKENS_BEFORE = 16
PIECE_TOKENS = 256
TAPE_BYTES = 1 << 28


class Bench:
    """One model in three slices."""

    def __init__(self, folder: Path, scratch: Path) -> None:
        config, files = read_config(folder), split_tensors(folder, scratch)
        self._hidden_size = config["hidden_size"]
        self._slices = [
            (build_slice(config, layers, files, Holding("F32"), lambda *_: None), layers)
            for layers in even_ranges(config["num_hidden_layers"], STAGES)
        ]

    def seconds(self, prompt_tokens: int, lost: int, rebuilds: bool) -> float:
        """CPU time from the request that goes on to its next token, after a stage was lost; else with nothing kept."""
        ring = MemoryRing(
            STAGES,
            PIECE_TOKENS,
            computes=[self._compute(stage) for stage in range(STAGES)],
            hidden_size=self._hidden_size,
            tape_bytes_max=TAPE_BYTES,
        )
        prompt, asked = prompt_of(prompt_tokens), {"new_tokens": 64, "sampling": Sampling(temperature=0)}
        heard = ring.submit("r", prompt, **asked)
        while len(heard.tokens) < TOKENS_BEFORE:
            for stage in range(STAGES):
                ring.step(stage)
        ring.break_off()
        ring.renew(lost, self._compute(lost))
        ring.begin_epoch(2, keeps=rebuilds, fresh={lost} if rebuilds else ())
        started_s = time.process_time()
        resumed = ring.submit("r", prompt, resume=heard.tokens, **asked)
        while not resumed.tokens:
            for stage in range(STAGES):
                ring.step(stage)
        took_s = time.process_time() - started_s
        assert (ring.counters[0].resumed_kept, ring.counters[0].resumed_anew) == (rebuilds, not rebuilds)
        return took_s

    def _compute(self, stage: int) -> TorchCompute:
        model, layers = self._slices[stage]
        return TorchCompute(model, layers, "F32", "cpu")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models_root", type=Path)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--prompts", type=int, nargs="*", default=PROMPTS)
    asked = parser.parse_args()
    print(f"load before: {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(hugging_face_folder(asked.models_root / MODEL, Path(scratch)), Path(scratch) / "tensors")
        bench.seconds(32, 1, True)
        print("| prompt | lost | replay, ms | rebuild, ms | replay / rebuild |\n|---|---|---|---|---|")
        for prompt_tokens in asked.prompts:
            for lost, name in enumerate(("stage 0", "middle", "last")):
                pairs = [
                    (bench.seconds(prompt_tokens, lost, False), bench.seconds(prompt_tokens, lost, True))
                    for _ in range(asked.pairs)
                ]
                replay_s, rebuild_s = (statistics.median(side) for side in zip(*pairs, strict=True))
                ratio = statistics.median(replay / rebuild for replay, rebuild in pairs)
                print(
                    f"| {prompt_tokens} | {name} | {replay_s * 1e3:.0f} | {rebuild_s * 1e3:.0f} | {ratio:.1f} |",
                    flush=True,
                )
    print(f"load after: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
