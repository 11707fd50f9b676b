"""Files of a slice that are not what they should be: the load fails with the reason, before anything is served."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from silentswarm.core.v1 import stage_pb2
from silentswarm.stage.v1 import stage_pb2 as stage_rpc
from swarm_core.errors import ServableCorrupt
from swarm_stage.serve.build import BuiltSlice, build

from tests.models import make_tiny_model, split_tensors

Spoil = Callable[[torch.Tensor], torch.Tensor]
WEIGHT = "model.layers.1.mlp.up_proj.weight"


def load(folder: Path, files: dict[str, str], start: int = 0, stop: int = 4) -> BuiltSlice:
    """Build a stage of the tiny model, as a fellow asks for it."""
    spec = stage_pb2.StageSpec(layer_start=start, layer_stop=stop, dtype="F32", context_tokens=64)
    request = stage_rpc.LoadRequest(spec=spec, model_dir=str(folder), tensor_files=files, device="cpu")
    return build(request, lambda step, done, total: None)


@pytest.fixture
def model(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """A good one: its folder, and a file for each tensor."""
    folder = make_tiny_model("llama", tmp_path / "model")
    return folder, {name: str(path) for name, path in split_tensors(folder, tmp_path / "tensors").items()}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize(
    ("name", "start"),
    [(WEIGHT, 0), (WEIGHT, 1), ("model.layers.3.input_layernorm.weight", 1), ("model.embed_tokens.weight", 0)],
)
def test_weights_that_are_no_numbers_fail_the_load(model, name: str, start: int, value: float):
    folder, files = model
    tensor = load_file(files[name])["tensor"]
    tensor[0] = value
    save_file({"tensor": tensor}, files[name])

    with pytest.raises(ServableCorrupt, match=rf"tensor {name} is corrupt: it holds NaN or infinity"):
        load(folder, files, start)


def test_numbers_that_add_up_to_none_fail_the_load(model):
    """Each is one; what the layer makes of them is not."""
    folder, files = model
    for name in (WEIGHT, "model.layers.1.mlp.gate_proj.weight"):
        save_file({"tensor": torch.full_like(load_file(files[name])["tensor"], 3e38)}, files[name])

    with pytest.raises(ServableCorrupt, match="layers 0 to 3 compute no numbers"):
        load(folder, files)


def test_weights_that_are_numbers_load(model):
    folder, files = model

    assert load(folder, files).model.weight_bytes > 0


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"[" * 100_000, "not JSON"),
        (b"[1]", "not a JSON object"),
        (b"\x80\x04\x95", "not JSON"),
        (b" " * (2**20 + 1), "more than 1048576"),
        (b'{"num_hidden_layers": [4]}', "not a count"),
        (b'{"num_hidden_layers": 1e9}', "not a count"),
        (b'{"num_hidden_layers": 4, "num_hidden_layers": 4}', "appears twice"),
        (b"{}", "not a count"),
    ],
)
def test_a_config_that_is_none_fails_the_load(model, raw: bytes, words: str):
    folder, files = model
    (folder / "config.json").write_bytes(raw)

    with pytest.raises(ServableCorrupt, match=words):
        load(folder, files)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\x80\x02}q\x00." * 9,
        b"PK\x03\x04" + bytes(99),
        (2**60).to_bytes(8, "little") + b"{}",
        (2).to_bytes(8, "little") + b"{}",
        len(b'{"tensor":{"dtype":"F32","shape":[9],"data_offsets":[0,36]}}').to_bytes(8, "little")
        + b'{"tensor":{"dtype":"F32","shape":[9],"data_offsets":[0,36]}}',
    ],
    ids=["empty", "pickle", "zip", "2^60", "no tensor", "beyond the end"],
)
def test_a_tensor_file_that_is_none_is_named(model, raw: bytes):
    folder, files = model
    Path(files[WEIGHT]).write_bytes(raw)

    with pytest.raises(ServableCorrupt, match=rf"tensor {WEIGHT} cannot be read"):
        load(folder, files)


@pytest.mark.parametrize("spoil", [lambda t: t.to(torch.int32), lambda t: t.T.contiguous(), lambda t: t[:, :1]])
def test_a_tensor_of_another_kind_or_shape_is_named(model, spoil: Spoil):
    folder, files = model
    save_file({"tensor": spoil(load_file(files[WEIGHT])["tensor"]).contiguous()}, files[WEIGHT])

    with pytest.raises(ServableCorrupt, match=rf"tensor {WEIGHT} (has shape|is of type)"):
        load(folder, files)


def test_a_config_of_another_size_is_told_apart_from_the_weights(model):
    folder, files = model
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "hidden_size": 2**20, "intermediate_size": 2**24}))

    with pytest.raises(ServableCorrupt, match="has shape"):
        load(folder, files)
