"""`python -m tests.bench.loading MODEL_FOLDER`: loading a slice against from_pretrained of the whole model.

Time from bytes on disk to the first logits, and the most memory the process ever held beyond what the libraries take;
each in a process of its own, alternating. Prints a Markdown table.
"""

import argparse
import gc
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from swarm_core.quantization import INT8, METHODS, NF4, NONE

from tests.bench import conditions

PAIRS = 3


def measure_whole(folder: Path, method: str) -> dict[str, float]:
    """from_pretrained of everything, then one token."""
    import torch
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    configs = {
        NONE: None,
        NF4: BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type=NF4, bnb_4bit_compute_dtype=torch.float32),
        INT8: BitsAndBytesConfig(load_in_8bit=True),
    }
    with _Measured() as measured, torch.inference_mode():
        model = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, quantization_config=configs[method], local_files_only=True
        )
        model(torch.tensor([[1, 2, 3]]))
    measured.facts["held"] = float(model.get_memory_footprint())
    return measured.facts


def measure_slice(folder: Path, method: str, stage: int, stages: int) -> dict[str, float]:
    """One stage of so many from single-tensor files, then its part of one token."""
    import torch
    from swarm_stage.model.build_slice import build_slice
    from swarm_stage.model.holding import Holding

    from tests.models import even_ranges, read_config

    config = read_config(folder)
    layers = even_ranges(config["num_hidden_layers"], stages)[stage]
    files = {path.name.removesuffix(".safetensors"): path for path in (folder / "tensors").iterdir()}
    with _Measured() as measured:
        part = build_slice(config, layers, files, Holding("F32", quantization=method), lambda done, total: None)
        hidden = part.embed([1, 2, 3]) if layers.is_first else torch.zeros(1, 3, part.hidden_size)
        hidden = part.run(hidden, part.new_cache(), 0)
        if layers.is_last:
            part.logits(hidden)
    measured.facts["held"] = float(part.weight_bytes)
    return measured.facts


class _Measured:
    """Seconds, and bytes of the largest resident set beyond what was there before."""

    def __enter__(self) -> "_Measured":
        import bitsandbytes  # noqa: F401 - the libraries' own memory is not the load's
        import torch

        torch.set_num_threads(1)
        torch.mm(torch.ones(64, 64), torch.ones(64, 64))
        gc.collect()
        self.facts: dict[str, float] = {}
        self._before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        self._started_s = time.perf_counter()
        return self

    def __exit__(self, *error: object) -> None:
        self.facts["seconds"] = time.perf_counter() - self._started_s
        self.facts["peak"] = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - self._before) * 1024


def in_a_process(*arguments: str) -> dict[str, float]:
    """One measurement, in a process that did nothing else."""
    command = [sys.executable, "-m", "tests.bench.loading", *arguments]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])


def main() -> None:
    """Measure in children, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--one", nargs="+", help="whole METHOD | slice METHOD STAGE STAGES, in this process")
    arguments = parser.parse_args()
    if arguments.one:
        kind, method, *place = arguments.one
        assert method in METHODS, method
        whole = kind == "whole"
        print(json.dumps((measure_whole if whole else measure_slice)(arguments.folder, method, *map(int, place))))
        return
    _split(arguments.folder)
    print("\n".join(conditions.machine()), conditions.load(), sep="\n", end="\n\n")
    print("| weights | what | seconds | peak MB | held MB | peak / held |")
    print("|---|---|---|---|---|---|")
    for method in (NONE, NF4, INT8):
        cases = {
            "whole, from_pretrained": ("whole", method),
            "one stage of 1": ("slice", method, "0", "1"),
            "stage 0 of 2": ("slice", method, "0", "2"),
            "stage 1 of 2": ("slice", method, "1", "2"),
        }
        found: dict[str, list[dict[str, float]]] = {name: [] for name in cases}
        for _ in range(PAIRS):
            for name, case in cases.items():
                found[name].append(in_a_process(str(arguments.folder), "--one", *case))
        for name, facts in found.items():
            seconds, peak, held = (median(one[key] for one in facts) for key in ("seconds", "peak", "held"))
            cells = (method, name, f"{seconds:.2f}", f"{peak / 1e6:.0f}", f"{held / 1e6:.0f}", f"{peak / held:.2f}")
            print("| " + " | ".join(cells) + " |", flush=True)


def _split(folder: Path) -> None:
    """Single-tensor files beside the checkpoint, as a fellow's cache has them."""
    from tests.models import split_tensors

    if not (folder / "tensors").exists():
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            split_tensors(folder, Path(scratch) / "tensors")
            (Path(scratch) / "tensors").rename(folder / "tensors")


if __name__ == "__main__":
    main()
