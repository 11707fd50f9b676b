"""servable.json and other JSON from elsewhere: nothing in it leaves the folder, overflows a counter or fills memory."""

import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from swarm_core.errors import ServableCorrupt
from swarm_core.json_bounds import read_json_object
from swarm_core.manifest import MANIFEST_BYTES_MAX, Manifest, manifest_from_json, manifest_to_json
from swarm_core.slices import LayerRange, layer_of, slice_tensors

SHA = "0" * 64
TENSOR = {"file": "base/a.safetensors", "begin": 0, "size_bytes": 8, "dtype": "F32", "shape": [2], "sha256": SHA}
GOOD: dict[str, Any] = {
    "format": 1,
    "model_id": "org/tiny",
    "model_type": "llama",
    "layer_count": 1,
    "hidden_size": 2,
    "vocabulary_size": 1,
    "kv_heads": 1,
    "head_dim": 2,
    "context_tokens_max": 16,
    "tied_embeddings": True,
    "tensors": {name: TENSOR for name in ("model.embed_tokens.weight", "model.norm.weight", "model.layers.0.w")},
    "files": {"config.json": {"size_bytes": 2, "sha256": SHA}},
}
BAD_PATHS = [
    "../a",
    "a/../../b",
    "/etc/passwd",
    "//a",
    "a//b",
    "./a",
    "a/.",
    "a/",
    "",
    ".",
    "..",
    "a\\b",
    "C:\\a",
    "a\0b",
    "a\nb",
    "a\x1b[2Jb",
    "a\u202eb",
    "\uff0e\uff0e/a",
    "e\u0301",
    "\ud800",
    ".hidden",
    "tokenizer/.a",
    "~/a",
    "a b",
    "x" * 201,
    "x/" * 300 + "a",
]


def read(**changes: Any) -> Manifest:
    """The good manifest with changes."""
    return manifest_from_json(json.dumps({**GOOD, **changes}).encode())


def with_tensor(**changes: Any) -> Manifest:
    return read(tensors={**GOOD["tensors"], "model.layers.0.w": {**TENSOR, **changes}})


def test_the_manifest_the_others_are_made_from_is_good():
    manifest = read()

    assert manifest_from_json(manifest_to_json(manifest)) == manifest


@pytest.mark.parametrize("path", BAD_PATHS)
def test_a_path_that_is_not_a_plain_name_is_refused_for_weights_and_for_small_files(path: str):
    with pytest.raises(ServableCorrupt):
        with_tensor(file=f"{path}.safetensors" if path.strip("./") else path)
    with pytest.raises(ServableCorrupt):
        read(files={f"{path}.json" if path.strip("./") else path: {"size_bytes": 2, "sha256": SHA}})


@pytest.mark.parametrize(
    "name",
    ["model.py", "a.bin", "a.pkl", "a.so", "config", "config.json.part", "servable.json", "servable.json.1-2.new"],
)
def test_a_small_file_no_stage_reads_is_never_asked_for(name: str):
    with pytest.raises(ServableCorrupt, match="no file a stage reads"):
        read(files={name: {"size_bytes": 2, "sha256": SHA}})


@pytest.mark.parametrize("name", ["", "a b", "a/b", "a\0", "a\n", "\u0663", "x" * 201, ".a", "a\x1b[31m", "\ud800"])
def test_a_tensor_has_a_plain_name(name: str):
    with pytest.raises(ServableCorrupt, match="not a tensor's name"):
        read(tensors={**GOOD["tensors"], name: TENSOR})


@pytest.mark.parametrize(
    "changes",
    [
        {"shape": [-2, -1]},
        {"shape": [True, 2]},
        {"shape": ["2"]},
        {"shape": [2.0]},
        {"shape": [2**63]},
        {"shape": "2"},
        {"shape": [1] * 9},
        {"shape": [2**62, 2**62]},
        {"shape": [3]},
        {"shape": None},
        {"begin": -1},
        {"begin": 2**63},
        {"begin": 1.5},
        {"size_bytes": "8"},
        {"size_bytes": True},
        {"dtype": "F8_E4M3"},
        {"dtype": ["F32"]},
        {"sha256": "0" * 63},
        {"sha256": "0" * 64 + "\n"},
        {"sha256": "A" * 64},
        {"sha256": None},
        {"file": 7},
        {"file": ["base"]},
        {"file": "base/model.bin"},
        {"file": "config.json"},
    ],
)
def test_a_tensor_that_lies_about_itself_is_refused(changes: dict[str, Any]):
    with pytest.raises(ServableCorrupt):
        with_tensor(**changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"layer_count": 2**31},
        {"layer_count": 0},
        {"layer_count": 4},
        {"layer_count": 1e9},
        {"hidden_size": 2**31},
        {"vocabulary_size": -1},
        {"kv_heads": "1"},
        {"head_dim": None},
        {"context_tokens_max": True},
        {"tied_embeddings": "no"},
        {"created_s": 2**70},
        {"created_s": -1},
        {"created_s": float("inf")},
        {"created_s": float("nan")},
        {"model_id": ""},
        {"model_id": 7},
        {"model_type": "a\x1b[2J"},
        {"source": "\ud800"},
        {"source": "x" * 5000},
        {"source": ["a"]},
        {"format": 2},
        {"tensors": []},
        {"tensors": {}},
        {"tensors": None},
        {"files": [1]},
        {"files": {"config.json": {"size_bytes": 2**20 + 1, "sha256": SHA}}},
        {"files": {"tokenizer/tokenizer.json": {"size_bytes": 2**26 + 1, "sha256": SHA}}},
        {"files": {f"{number}.json": {"size_bytes": 1, "sha256": SHA} for number in range(65)}},
        {"tensors": {f"model.layers.0.w{number}": TENSOR for number in range(50_001)}},
        {"extra": 5},
    ],
)
def test_a_manifest_beyond_its_bounds_is_refused(changes: dict[str, Any]):
    with pytest.raises(ServableCorrupt):
        read(**changes)


def test_sums_over_all_tensors_fit_every_counter():
    large = {**TENSOR, "dtype": "U8", "shape": [2**58], "size_bytes": 2**58}
    with pytest.raises(ServableCorrupt, match="bytes of weights"):
        read(tensors={f"model.layers.0.w{number}": large for number in range(8)})


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"[" * MANIFEST_BYTES_MAX, "values, more than"),
        (b'{"a":[' + b"[]," * 2_000_000 + b"1]}", "values, more than"),
        (b'{"a":' + b"[" * 900_000 + b"]" * 900_000 + b"}", "not JSON"),
        (b'{"a":' + b"9" * 1_000_000 + b"}", "not JSON"),
        (b" " * (MANIFEST_BYTES_MAX + 1), "bytes, more than"),
        (b'{"format": 1, "format": 1}', "'format' appears twice"),
        (b"\xff\xfe\x00", "not JSON"),
        (b"7", "not a JSON object"),
        (b"", "not JSON"),
    ],
)
def test_json_that_would_fill_memory_or_means_two_things_is_refused_quickly(raw: bytes, words: str):
    begun_s = time.monotonic()
    with pytest.raises(ServableCorrupt, match=words):
        manifest_from_json(raw)
    with pytest.raises(ServableCorrupt, match=words):
        read_json_object(raw, "a file", MANIFEST_BYTES_MAX)

    assert time.monotonic() - begun_s < 5


@settings(max_examples=300, deadline=None)
@given(
    key=st.sampled_from(sorted(GOOD)),
    value=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
        max_leaves=6,
    ),
)
def test_whatever_stands_in_a_field_the_manifest_is_read_or_refused(key: str, value: Any):
    try:
        manifest = read(**{key: value})
    except ServableCorrupt:
        return
    assert manifest.layer_count <= len(manifest.tensors)
    assert max(manifest.weight_bytes, manifest.parameter_count, manifest.created_s) < 2**63


@pytest.mark.parametrize("tensor", ["model.layers.\u0663.w", "model.layers.007.w", "model.layers.-1.w"])
def test_a_layer_is_counted_in_plain_digits(tensor: str):
    assert layer_of(tensor) is None


def test_an_endless_layer_number_is_no_layer():
    assert layer_of("model.layers." + "9" * 5000 + ".w") is None


def test_a_slice_of_a_thousand_million_layers_is_refused_before_it_is_counted():
    begun_s = time.monotonic()
    with pytest.raises(ServableCorrupt, match="3 tensors for 1000000000 layers"):
        slice_tensors(read(), LayerRange(0, 10**9, 10**9))

    assert time.monotonic() - begun_s < 1
