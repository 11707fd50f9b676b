"""How high the resident set of a process goes while it loads a slice. A program of its own, for tests only.

In a process that did other things before, its heap has holes that a load fills and its libraries have pages that the
kernel took back: as much as 20 MB that say nothing about the load.
"""

import ctypes
import gc
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from swarm_core.slices import LayerRange
from swarm_stage.model.build_slice import build_slice
from swarm_stage.model.holding import Holding

from tests.models import read_config, split_tensors


@dataclass(frozen=True)
class Peak:
    """What a load took. slice_bytes: of its weights. grown_bytes: the highest above what there was before."""

    quantization: str
    slice_bytes: int
    grown_bytes: int


def loading_peaks(folder: Path, tiny: Path, stop: int, methods: Sequence[str], scratch: Path) -> list[Peak]:
    """The peak of loading layers 0 to `stop` of the model in `folder` by each method, after a load of `tiny`'s."""
    work = scratch / "work.json"
    models = [[read_config(each), split_tensors(each, scratch / f"{each.name}-tensors")] for each in (folder, tiny)]
    work.write_text(json.dumps([*models, stop, list(methods)]))
    done = subprocess.run([sys.executable, "-m", __name__, work], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return [Peak(*each) for each in json.loads(done.stdout)]


def _measure(config: dict, files: dict[str, str], stop: int, method: str, tiny: list) -> tuple[str, int, int]:
    holding = Holding("F32", quantization=method)
    _build(*tiny, min(stop, 2), holding)  # imports, thread pools
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what was freed before must not stand in for what this load takes
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
    before_bytes = _resident_bytes("VmRSS")
    part = _build(config, files, stop, holding)
    return part.quantization, part.weight_bytes, _resident_bytes("VmHWM") - before_bytes


def _build(config: dict, files: dict[str, str], stop: int, holding: Holding):
    return build_slice(
        config, LayerRange(0, stop, config["num_hidden_layers"]), files, holding, lambda done, total: None
    )


def _resident_bytes(which: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(which))


def main(work: Path) -> None:
    """Print a Peak's fields for every method."""
    torch.set_num_threads(1)
    (config, files), tiny, stop, methods = json.loads(work.read_text())
    print(json.dumps([_measure(config, files, stop, method, tiny) for method in methods]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
