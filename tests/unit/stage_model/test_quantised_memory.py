"""What a load that quantises takes at its highest: its slice, a tensor as it is stored, and no copy of the whole."""

import ctypes
import gc
import sys
from pathlib import Path

import pytest
import torch
from swarm_core.quantization import QUANTIZED
from swarm_core.slices import LayerRange
from swarm_stage.model.build_slice import build_slice
from swarm_stage.model.holding import Holding

from tests.models import make_tiny_model, read_config, split_tensors

CONSTANT_BYTES = 24 * 2**20  # a chunk of weights while it is quantised, and what allocators keep
LAYERS = LayerRange(0, 2, 2)
SHAPE = {"hidden_size": 1024, "intermediate_size": 2816, "num_attention_heads": 8, "head_dim": 128}
LARGEST_BYTES = 1024 * 2816 * 4

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the peak is read and reset in Linux's /proc")


def resident_bytes(which: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(which))


def test_a_load_that_quantises_never_holds_the_whole_at_full_precision(tmp_path):
    """100 MB of float32; what counts is the highest the resident set of this process ever is."""
    folder = make_tiny_model("llama", tmp_path / "big", layers=2, num_key_value_heads=8, vocab_size=500, **SHAPE)
    tiny = make_tiny_model("llama", tmp_path / "tiny", layers=2, hidden_size=64, intermediate_size=128)
    config, files = read_config(folder), split_tensors(folder, tmp_path / "t")
    tiny_config, tiny_files = read_config(tiny), split_tensors(tiny, tmp_path / "tt")
    before_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    for method in QUANTIZED:
        holding = Holding("F32", quantization=method)
        build_slice(tiny_config, LAYERS, tiny_files, holding, lambda done, total: None)  # imports
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)  # what was freed before must not stand in for what this load takes
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
        before_bytes = resident_bytes("VmRSS")
        part = build_slice(config, LAYERS, files, holding, lambda done, total: None)
        grown_bytes = resident_bytes("VmHWM") - before_bytes

        print(f"{method}: slice {part.weight_bytes}, peak {grown_bytes}")
        assert part.quantization == method
        assert grown_bytes <= 1.3 * part.weight_bytes + LARGEST_BYTES + CONSTANT_BYTES, method
        assert 1.3 * part.weight_bytes + LARGEST_BYTES + CONSTANT_BYTES < 0.9 * 100e6  # else this would show nothing
        del part
    torch.set_num_threads(before_threads)
