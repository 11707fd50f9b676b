"""Safetensors headers: believed only as far as the file goes."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file
from swarm_core.errors import ServableCorrupt
from swarm_leader.catalog.sources.header import HEADER_BYTES_MAX, read_header


def write_raw(path: Path, header: Any, body: bytes = b"\0" * 64, length: int | None = None) -> Path:
    """A file with this header, honest about its length unless told otherwise."""
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes((len(raw) if length is None else length).to_bytes(8, "little") + raw + body)
    return path


def entry(begin: int, end: int, shape: list[Any], dtype: Any = "F32") -> dict[str, Any]:
    """One tensor of a header."""
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def test_spans_point_at_the_raw_bytes(tmp_path: Path):
    tensors = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.ones(4, np.float16), "empty": np.ones((0, 3))}
    save_file(tensors, tmp_path / "x.safetensors", metadata={"format": "pt"})
    raw = (tmp_path / "x.safetensors").read_bytes()

    spans = read_header(tmp_path / "x.safetensors")
    assert set(spans) == set(tensors)
    for name, span in spans.items():
        assert raw[span.begin : span.begin + span.size_bytes] == tensors[name].tobytes()
        assert span.shape == tensors[name].shape


@pytest.mark.parametrize("length", [2**60, 2**64 - 1, HEADER_BYTES_MAX + 1, 1000])
def test_a_header_longer_than_the_file_is_not_read(tmp_path: Path, length: int):
    path = write_raw(tmp_path / "x", {}, length=length)

    with pytest.raises(ServableCorrupt, match="the header claims"):
        read_header(path)


@pytest.mark.parametrize("raw", [b"", b"\x01", b"\x00" * 7])
def test_a_file_too_short_for_a_header_is_corrupt(tmp_path: Path, raw: bytes):
    (tmp_path / "x").write_bytes(raw)

    with pytest.raises(ServableCorrupt):
        read_header(tmp_path / "x")


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ({"a": entry(0, 8, [2]), "b": entry(4, 12, [2])}, "'a' and 'b' overlap"),
        ({"a": entry(0, 64, [16]), "b": entry(8, 16, [2])}, "overlap"),
        ({"a": entry(60, 68, [2])}, "outside the 64 bytes"),
        ({"a": entry(8, 0, [2])}, "outside"),
        ({"a": entry(-8, 0, [2])}, "outside"),
        ({"a": entry(0, 2**62, [2**60])}, "outside"),
        ({"a": entry(0, 8, [3])}, "is 12 bytes, its range 8"),
        ({"a": entry(0, 0, [2**62, 2**62])}, "its range 0"),
        ({"a": entry(0, 8, [-1, -2])}, "no shape"),
        ({"a": entry(0, 8, [2.0])}, "no shape"),
        ({"a": entry(0, 8, [True, 2])}, "no shape"),
        ({"a": entry(0, 4, [1] * 9)}, "no shape"),
        ({"a": entry(0, 8, [8], "F8_E4M3")}, "'F8_E4M3', which is not served"),
        ({"a": entry(0, 8, [2], None)}, "no dtype"),
        ({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0]}}, "outside"),
        ({"a": [1]}, "no dtype"),
        ([1], "not a JSON object"),
        (b"{", "not JSON"),
        (b'{"a": 1, "a": 2}', "appears twice"),
        (b"[" * 50_000, "not JSON"),
        (b"\xff\xfe{}", "not JSON"),
    ],
)
def test_a_header_that_lies_is_corrupt(tmp_path: Path, header: Any, words: str):
    path = write_raw(tmp_path / "x", header)

    with pytest.raises(ServableCorrupt, match=words):
        read_header(path)


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(position=st.integers(0, 300), noise=st.binary(min_size=1, max_size=8), cut=st.none() | st.integers(0, 300))
def test_a_damaged_file_is_read_inside_its_bounds_or_not_at_all(
    tmp_path: Path, position: int, noise: bytes, cut: int | None
):
    save_file({"a": np.ones((2, 3), np.float32), "b": np.zeros(5, np.int8)}, tmp_path / "x")
    raw = (tmp_path / "x").read_bytes()
    raw = (raw[:position] + noise + raw[position + len(noise) :])[:cut]
    (tmp_path / "x").write_bytes(raw)

    try:
        spans = read_header(tmp_path / "x")
    except ServableCorrupt:
        return
    assert all(8 <= span.begin <= span.begin + span.size_bytes <= len(raw) for span in spans.values())
