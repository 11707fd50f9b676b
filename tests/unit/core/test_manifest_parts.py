"""The optional parts of servable.json: written and read again, absent as before, refused when they lie."""

import hashlib
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from swarm_core.errors import ServableCorrupt
from swarm_core.manifest import Manifest, manifest_from_json, manifest_to_json
from swarm_core.servable_parts import AdapterOf, HubOrigin, TrainingSplit
from swarm_core.slices import LayerRange, slice_tensors

SHA = "0" * 64


def tensor(*shape: int, dtype: str = "F32") -> dict[str, Any]:
    size_bytes = 4
    for extent in shape:
        size_bytes *= extent
    return {
        "file": "base/a.safetensors",
        "begin": 0,
        "size_bytes": size_bytes,
        "dtype": dtype,
        "shape": shape,
        "sha256": SHA,
    }


WHOLE: dict[str, Any] = {
    "format": 1,
    "model_id": "org/tiny",
    "model_type": "llama",
    "layer_count": 4,
    "hidden_size": 2,
    "vocabulary_size": 1,
    "kv_heads": 1,
    "head_dim": 2,
    "context_tokens_max": 16,
    "tied_embeddings": True,
    "tensors": {f"model.layers.{layer}.w": tensor(2) for layer in range(4)},
    "files": {"config.json": {"size_bytes": 2, "sha256": SHA}},
}
Q, UP = "model.layers.1.self_attn.q_proj", "model.layers.3.mlp.up_proj"
PAIRS = {
    f"{Q}.lora_A.weight": tensor(2, 8),
    f"{Q}.lora_B.weight": tensor(6, 2),
    f"{UP}.lora_A.weight": tensor(3, 8),
    f"{UP}.lora_B.weight": tensor(9, 3),
}
ADAPTER = {
    "base_model_id": "org/base",
    "rank": 3,
    "targets": ["q_proj", "up_proj"],
    "scale": 2.0,
    "scales": [[UP, 0.5]],
}
ORIGIN = {"repository": "org/tiny", "commit": "a" * 40}


def read(**changes: Any) -> Manifest:
    return manifest_from_json(json.dumps({**WHOLE, **changes}).encode())


def read_adapter(tensors: dict[str, Any] | None = None, **changes: Any) -> Manifest:
    return read(tensors=PAIRS if tensors is None else tensors, adapter={**ADAPTER, **changes})


def test_a_manifest_without_parts_is_written_byte_for_byte_as_older_releases_wrote_it():
    """The hash of 0.1.0's bytes: it names models in ledgers and caches that exist."""
    golden = json.dumps(
        {**WHOLE, "source": "", "created_s": 0, "extra": {}}, sort_keys=True, separators=(",", ":")
    ).encode()
    written = manifest_to_json(read())

    assert written == golden
    assert hashlib.sha256(written).hexdigest() == "6617eb292d49c31c228710ca64b7518b749279fcbce7a51709c5cc70c667c1d8"


@pytest.mark.parametrize(
    "parts",
    [
        {"split": {"layer_starts": [0, 1, 3], "recorded": True, "codecs": ["int8", ""]}},
        {"split": {"layer_starts": [0, 2], "recorded": False, "codecs": []}, "quantization": "nf4"},
        {"quantization": "none"},
        {"origin": {**ORIGIN, "endpoint": "http://127.0.0.1:8000/hub"}},
        {"adapter": ADAPTER, "tensors": PAIRS, "quantization": "nf4"},
    ],
)
def test_parts_are_written_and_read_again_unchanged(parts: dict[str, Any]):
    manifest = read(**parts)

    assert manifest_from_json(manifest_to_json(manifest)) == manifest
    assert manifest_to_json(manifest) != manifest_to_json(read())


def test_a_manifest_says_where_training_cut_and_where_weights_are():
    manifest = read(split={"layer_starts": [0, 1, 3], "recorded": True, "codecs": ["int8", ""]}, origin=ORIGIN)

    assert manifest.split == TrainingSplit((0, 1, 3), True, ("int8", ""))
    assert (manifest.split.codec_before(1), manifest.split.codec_before(3), manifest.split.codec_before(2)) == (
        "int8",
        "",
        "",
    )
    assert manifest.origin == HubOrigin("org/tiny", "a" * 40)
    assert read_adapter().adapter == AdapterOf("org/base", 3, ("q_proj", "up_proj"), 2.0, ((UP, 0.5),), "lora")


@pytest.mark.parametrize(
    "split",
    [
        7,
        [],
        {},
        {"layer_starts": [0, 2]},
        {"layer_starts": [0, 2], "recorded": "yes"},
        {"layer_starts": [], "recorded": True},
        {"layer_starts": [1, 2], "recorded": True},
        {"layer_starts": [0, 2, 2], "recorded": True},
        {"layer_starts": [0, 3, 2], "recorded": True},
        {"layer_starts": [0, 4], "recorded": True},
        {"layer_starts": [0, 2**70], "recorded": True},
        {"layer_starts": [False, True], "recorded": True},
        {"layer_starts": [0, 1.5], "recorded": True},
        {"layer_starts": [0, None], "recorded": True},
        {"layer_starts": "01", "recorded": True},
        {"layer_starts": [0, 2], "recorded": True, "codecs": ["int8", "int8"]},
        {"layer_starts": [0, 2], "recorded": True, "codecs": ["zip"]},
        {"layer_starts": [0, 2], "recorded": True, "codecs": [None]},
        {"layer_starts": [0, 2], "recorded": True, "codecs": [["int8"]]},
        {"layer_starts": [0, 2], "recorded": True, "codecs": "i"},
    ],
)
def test_a_split_that_cannot_be_is_refused(split: Any):
    with pytest.raises(ServableCorrupt, match=r"split|recorded"):
        read(split=split)


@pytest.mark.parametrize("method", ["q4", 4, ["nf4"], {"method": "nf4"}, "NF4", "nf4\n"])
def test_an_unknown_quantization_is_refused(method: Any):
    with pytest.raises(ServableCorrupt, match="quantization"):
        read(quantization=method)


@pytest.mark.parametrize(
    "changes",
    [
        {"repository": "tiny"},
        {"repository": "../tiny"},
        {"repository": "org/../tiny"},
        {"repository": "org/ti..ny"},
        {"repository": "http://x/y"},
        {"repository": "org/tiny?x"},
        {"repository": 7},
        {"commit": "main"},
        {"commit": "A" * 40},
        {"commit": "a" * 39},
        {"commit": "../" + "a" * 40},
        {"commit": None},
        {"endpoint": "ftp://hub"},
        {"endpoint": "file:///etc/passwd"},
        {"endpoint": "http://user:secret@hub"},
        {"endpoint": "http://hub?x=1"},
        {"endpoint": "http://hub/../x"},
        {"endpoint": "http://hub:99999"},
        {"endpoint": "http://hub\n"},
        {"endpoint": "http://" + "h" * 300},
        {"endpoint": ["http://hub"]},
    ],
)
def test_an_origin_that_is_no_place_on_a_hub_is_refused(changes: dict[str, Any]):
    with pytest.raises(ServableCorrupt, match=r"origin|repository|commit|endpoint"):
        read(origin={**ORIGIN, **changes})


@pytest.mark.parametrize(
    "changes",
    [
        {"base_model_id": ""},
        {"base_model_id": None},
        {"rank": 2},
        {"rank": 513},
        {"rank": 3.0},
        {"targets": []},
        {"targets": "q_proj"},
        {"targets": ["q_proj"]},
        {"targets": ["q_proj", "up_proj", "k_proj"]},
        {"targets": ["q_proj", "(a+)+$"]},
        {"targets": ["q_proj"] * 300},
        {"scale": float("inf")},
        {"scale": float("nan")},
        {"scale": 1e300},
        {"scale": "2"},
        {"scale": True},
        {"scale": None},
        {"scales": [[UP, float("nan")]]},
        {"scales": [[UP, 1.0], [UP, 2.0]]},
        {"scales": [["model.layers.2.mlp.up_proj", 1.0]]},
        {"scales": [["../x", 1.0]]},
        {"scales": [[UP]]},
        {"scales": {UP: 1.0}},
        {"variant": "loha"},
        {"variant": "dora"},
    ],
)
def test_an_adapter_that_lies_about_its_tensors_is_refused(changes: dict[str, Any]):
    with pytest.raises(ServableCorrupt):
        read_adapter(**changes)


@pytest.mark.parametrize(
    "tensors",
    [
        {**PAIRS, "model.layers.0.w": tensor(2)},
        {**PAIRS, "lm_head.lora_A.weight": tensor(2, 8), "lm_head.lora_B.weight": tensor(6, 2)},
        {name: entry for name, entry in PAIRS.items() if name != f"{Q}.lora_B.weight"},
        {**PAIRS, f"{Q}.lora_B.weight": tensor(6, 3)},
        {**PAIRS, f"{Q}.lora_A.weight": tensor(16)},
        {**PAIRS, f"{Q}.lora_A.weight": tensor(0, 8), f"{Q}.lora_B.weight": tensor(6, 0)},
        {**PAIRS, f"{UP}.lora_A.weight": tensor(600, 8), f"{UP}.lora_B.weight": tensor(9, 600)},
        {**PAIRS, f"{Q}.lora_A.weight": tensor(2, 8, dtype="I32")},
        {name.replace("layers.3", "layers.4"): entry for name, entry in PAIRS.items()},
        {name.replace("mlp.up_proj", "mlp.0.a.b.c.d.e"): entry for name, entry in PAIRS.items()},
        {**PAIRS, f"{Q}.lora_magnitude_vector": tensor(6)},
    ],
)
def test_an_adapter_of_anything_but_whole_pairs_in_layers_is_refused(tensors: dict[str, Any]):
    with pytest.raises(ServableCorrupt):
        read_adapter(tensors, scales=[])


def test_a_dora_has_the_magnitudes_of_every_module():
    magnitudes = {f"{Q}.lora_magnitude_vector": tensor(6), f"{UP}.lora_magnitude_vector": tensor(9)}

    assert read_adapter(PAIRS | magnitudes, variant="dora").adapter.variant == "dora"
    with pytest.raises(ServableCorrupt, match="has magnitudes"):
        read_adapter(PAIRS | magnitudes | {f"{Q}.lora_magnitude_vector": tensor(7)}, variant="dora")


def test_a_stage_needs_of_an_adapter_what_its_layers_have_and_no_more():
    manifest = read_adapter()

    assert slice_tensors(manifest, LayerRange(0, 2, 4)) == [f"{Q}.lora_A.weight", f"{Q}.lora_B.weight"]
    assert slice_tensors(manifest, LayerRange(2, 3, 4)) == []
    assert len(slice_tensors(manifest, LayerRange(0, 4, 4))) == 4


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=300, deadline=None)
@given(
    part=st.sampled_from(["split", "quantization", "adapter", "origin"]),
    key=st.sampled_from(["layer_starts", "recorded", "codecs", "targets", "scales", "scale", "rank", "commit", ""]),
    value=_JSON,
)
def test_whatever_stands_in_a_part_the_manifest_is_read_or_refused(part: str, key: str, value: Any):
    good = {"split": {"layer_starts": [0, 2], "recorded": True}, "adapter": ADAPTER, "origin": ORIGIN}
    inner = {**good[part], key: value} if key and part in good else value
    try:
        manifest = read(tensors=PAIRS if part == "adapter" else WHOLE["tensors"], **{part: inner})
    except ServableCorrupt:
        return
    assert manifest_from_json(manifest_to_json(manifest)) == manifest
