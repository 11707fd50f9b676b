"""What a load that quantises takes at its highest: its slice, a tensor as it is stored, and no copy of the whole."""

import sys

import pytest
from swarm_core.quantization import QUANTIZED

from tests.models import make_tiny_model
from tests.unit.stage_model.loading_peak import loading_peaks

CONSTANT_BYTES = 24 * 2**20  # a chunk of weights while it is quantised, and what allocators keep
SHAPE = {"hidden_size": 1024, "intermediate_size": 2816, "num_attention_heads": 8, "head_dim": 128}
LARGEST_BYTES = 1024 * 2816 * 4

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the peak is read and reset in Linux's /proc")


def test_a_load_that_quantises_never_holds_the_whole_at_full_precision(tmp_path):
    """100 MB of float32; what counts is the highest the resident set of a process ever is."""
    folder = make_tiny_model("llama", tmp_path / "big", layers=2, num_key_value_heads=8, vocab_size=500, **SHAPE)
    tiny = make_tiny_model("llama", tmp_path / "tiny", layers=2, hidden_size=64, intermediate_size=128)
    peaks = loading_peaks(folder, tiny, 2, QUANTIZED, tmp_path)

    assert [peak.quantization for peak in peaks] == list(QUANTIZED)
    for peak in peaks:
        assert peak.grown_bytes <= 1.3 * peak.slice_bytes + LARGEST_BYTES + CONSTANT_BYTES, peak
        assert 1.3 * peak.slice_bytes + LARGEST_BYTES + CONSTANT_BYTES < 0.9 * 100e6  # else this would show nothing
