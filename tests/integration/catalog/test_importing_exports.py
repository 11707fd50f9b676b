"""What training exports: shards become a servable that knows where it was cut, or are refused with the reason."""

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from swarm_core.errors import BadRequest, ServableCorrupt
from swarm_core.manifest import Manifest
from swarm_core.servable_parts import TrainingSplit
from swarm_leader.catalog.disk import DiskCatalog, find_file, read_range
from swarm_leader.catalog.importer import Importer

from tests.integration.catalog.checkpoints import llama_tensors, names_in, nobody_listens, write_checkpoint
from tests.servables import make_perturbed_folder, make_split_folder, read_tensors

LAYERS = 4
Spoil = Callable[[Path], None]


def tensors_of(layers: int = LAYERS, tied: bool = True) -> dict[str, np.ndarray]:
    """A model of so many layers."""
    two = llama_tensors(tied=tied)
    for layer in range(2, layers):
        two |= {
            name.replace("layers.0", f"layers.{layer}"): tensor + layer
            for name, tensor in two.items()
            if "rs.0" in name
        }
    return two


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Four layers."""
    return write_checkpoint(tmp_path / "checkpoint", {"num_hidden_layers": LAYERS}, tensors_of())


async def import_export(root: Path, folder: Path, model_id: str = "org/trained") -> Manifest:
    return await Importer(root).import_source(str(folder), model_id, "", nobody_listens)


def served_tensors(root: Path, manifest: Manifest, folder: str = "org---trained") -> dict[str, bytes]:
    """The bytes of every tensor, each compared with its hash."""
    served = {}
    for name, entry in manifest.tensors.items():
        raw = read_range(find_file(root / folder, entry.file), entry.begin, entry.size_bytes)
        assert hashlib.sha256(raw).hexdigest() == entry.sha256
        served[name] = raw
    return served


@pytest.mark.parametrize("local_names", [False, True])
@pytest.mark.parametrize("recorded", [True, False])
async def test_shards_become_a_servable_cut_where_training_cut(
    root: Path, checkpoint: Path, tmp_path: Path, recorded: bool, local_names: bool
):
    folder = make_split_folder(
        checkpoint, tmp_path / "export", [1, 3], 7, ["int8", "none"], recorded=recorded, local_names=local_names
    )
    manifest = await import_export(root, folder)

    assert manifest.split == TrainingSplit((0, 1, 3), recorded, ("int8", ""))
    trained = read_tensors(make_perturbed_folder(checkpoint, tmp_path / "whole", 7))
    assert served_tensors(root, manifest) == {name: tensor.tobytes() for name, tensor in trained.items()}
    stage_of = {name: entry.file.split("/")[1] for name, entry in manifest.tensors.items()}
    assert stage_of["model.layers.0.mlp.down_proj.weight"] == stage_of["model.embed_tokens.weight"] == "stage-0"
    assert stage_of["model.layers.2.mlp.down_proj.weight"] == "stage-1"
    assert stage_of["model.norm.weight"] == "stage-2"
    assert set(manifest.files) >= {"config.json", "tokenizer/tokenizer.json", "tokenizer/tokenizer_config.json"}
    catalog = DiskCatalog(root)
    catalog.refresh()
    assert (catalog.get("org/trained"), catalog.broken()) == (manifest, {})


@pytest.mark.parametrize(
    ("said", "method"),
    [({"method": "nf4"}, "nf4"), ({"bits": 8}, "int8"), ({"bits": 4, "backend": "torchao"}, "int4-fast"), (None, "")],
)
async def test_the_quantisation_of_training_is_the_default(
    root: Path, checkpoint: Path, tmp_path: Path, said: Any, method: str
):
    manifest = await import_export(root, make_split_folder(checkpoint, tmp_path / "e", [2], quantization=said))

    assert manifest.quantization == method


async def test_the_same_export_again_is_harmless(root: Path, checkpoint: Path, tmp_path: Path):
    folder = make_split_folder(checkpoint, tmp_path / "e", [2])
    first = await import_export(root, folder)

    assert await import_export(root, folder) == first


async def test_an_export_put_among_the_servables_by_hand_is_listed_with_what_to_do_and_made_servable_there(
    root: Path, checkpoint: Path
):
    folder = make_split_folder(checkpoint, root / "by-hand", [2], perturb_seed=3)
    catalog = DiskCatalog(root)
    catalog.refresh()
    assert f"made servable by `swarm model-import {folder}`" in catalog.broken()["by-hand"]

    manifest = await import_export(root, folder, "")
    catalog.refresh()

    assert (catalog.manifests(), catalog.broken()) == ({"by-hand": manifest}, {})
    assert len(served_tensors(root, manifest, "by-hand")) == len(tensors_of())


async def test_a_finished_servable_put_there_by_hand_is_found(root: Path, checkpoint: Path, tmp_path: Path):
    other = tmp_path / "other"
    manifest = await import_export(other, make_split_folder(checkpoint, tmp_path / "e", [2]))
    root.mkdir()
    (other / "org---trained").rename(root / "org---trained")
    catalog = DiskCatalog(root)
    catalog.refresh()

    assert catalog.manifests() == {"org/trained": manifest}


def copy_embeddings(folder: Path, change: float) -> None:
    """The last shard of a tied model brings its own copy of the embeddings, as its head."""
    path = folder / "shards/stage-1/weights.safetensors"
    copied = load_file(folder / "shards/stage-0/weights.safetensors")["model.embed_tokens.weight"] + np.float32(change)
    save_file(load_file(path) | {"model.embed_tokens.weight": copied}, path)


async def test_a_head_that_is_a_copy_of_the_embeddings_is_kept_once(root: Path, checkpoint: Path, tmp_path: Path):
    folder = make_split_folder(checkpoint, tmp_path / "e", [2])
    copy_embeddings(folder, 0.0)
    manifest = await import_export(root, folder)

    assert manifest.tied_embeddings and "lm_head.weight" not in manifest.tensors


async def test_a_head_that_training_moved_away_from_the_embeddings_is_a_head_of_its_own(
    root: Path, checkpoint: Path, tmp_path: Path
):
    folder = make_split_folder(checkpoint, tmp_path / "e", [2])
    copy_embeddings(folder, 0.5)
    manifest = await import_export(root, folder)

    assert not manifest.tied_embeddings
    assert manifest.tensors["lm_head.weight"].file == "shards/stage-1/weights.safetensors"
    assert json.loads((root / "org---trained/config.json").read_text())["tie_word_embeddings"] is False


def change_export(**changes: Any) -> Spoil:
    def spoil(folder: Path) -> None:
        document = json.loads((folder / "servable.json").read_text())
        document["split"] |= {
            key: value for key, value in changes.items() if key in ("stage_count", "boundaries", "codecs")
        }
        document |= {key: value for key, value in changes.items() if key not in document["split"]}
        (folder / "servable.json").write_text(json.dumps(document))

    return spoil


def change_shard(stage: int, change: Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]) -> Spoil:
    def spoil(folder: Path) -> None:
        path = folder / f"shards/stage-{stage}/weights.safetensors"
        save_file(change(load_file(path)), path)

    return spoil


def without(part: str) -> Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]:
    return lambda tensors: {name: tensor for name, tensor in tensors.items() if part not in name}


def renamed(old: str, new: str) -> Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]:
    return lambda tensors: {name.replace(old, new): tensor for name, tensor in tensors.items()}


def both(*spoils: Spoil) -> Spoil:
    def spoil(folder: Path) -> None:
        for one in spoils:
            one(folder)

    return spoil


def unrecorded(spoil: Spoil) -> Spoil:
    return both(lambda folder: (folder / "servable.json").unlink(), spoil)


def link_out(name: str) -> Spoil:
    def spoil(folder: Path) -> None:
        outside = folder.parent / "outside"
        (folder / name).rename(outside)
        (folder / name).symlink_to(outside)

    return spoil


def lying_header(raw: bytes, length: int | None = None) -> Spoil:
    def spoil(folder: Path) -> None:
        start = (len(raw) if length is None else length).to_bytes(8, "little")
        (folder / "shards/stage-1/weights.safetensors").write_bytes(start + raw + bytes(64))

    return spoil


OVERLAPPING = (
    b'{"a":{"dtype":"F32","shape":[8],"data_offsets":[0,32]},"b":{"dtype":"F32","shape":[8],"data_offsets":[4,36]}}'
)
WRONG_SHAPE = b'{"a":{"dtype":"F32","shape":[9],"data_offsets":[0,32]}}'
OUTSIDE = b'{"a":{"dtype":"F32","shape":[800],"data_offsets":[0,3200]}}'
# What is wrong -> words of the refusal. Two stages, cut at layer 2 of 4.
HOSTILE: list[tuple[Spoil, str]] = [
    (change_export(boundaries=[1]), r"stage-0 holds layer 1, but servable.json records layers 0 to 0 for it"),
    (change_export(boundaries=[3]), r"stage-1 holds layer 2, but .* records layers 3 to 3|stage-0 lacks layer 2"),
    (change_export(boundaries=[4]), r"records boundaries \[4\] for 2 shards of 4 layers"),
    (change_export(boundaries=[0]), r"boundaries is \[0\], not layers that rise from 1"),
    (change_export(boundaries=[2, 3]), r"2 stages have 1 boundaries, not 2"),
    (change_export(boundaries="2"), r"boundaries is 2, not layers"),
    (change_export(stage_count=3, boundaries=[1, 2]), r"says 3 stages, there are 2 shards"),
    (change_export(stage_count=2**70), r"stage_count is \d+, not a count"),
    (change_export(codecs=["bottleneck"]), r"coded as 'bottleneck', which is not served; served are int8, int4"),
    (change_export(codecs=["int8", "int8"]), r"has 2 codecs for 1 boundaries"),
    (change_export(codecs=[["int8"]]), r"coded as \"\['int8'\]\""),
    (change_export(split=7), r"split is 7, not an object"),
    (change_export(quantization={"method": "q2"}), r"quantization 'q2' does not exist"),
    (change_export(quantization={"method": "nf4", "bits": 8}), r"contradicts itself"),
    (change_export(quantization=[4]), r"quantization is \[4\], not an object"),
    (change_export(base=["x"]), r"base is \['x'\], not a model's name"),
    (change_export(format=1), r"is of a finished servable"),
    (lambda folder: (folder / "servable.json").write_text("{"), r"servable.json is not JSON"),
    (lambda folder: (folder / "servable.json").write_text('{"split":' + "[" * 9000), r"servable.json is not JSON"),
    (change_shard(1, without("layers.3")), r"stage-1 lacks layer 3 of its 2 to 3"),
    (change_shard(1, without("layers.3.mlp")), r"layer 3 lacks mlp.down_proj.weight, which other layers have"),
    (change_shard(1, renamed("layers.3", "layers.4")), r"stage-1 holds layer 4, but"),
    (change_shard(1, renamed("layers.2", "layers.1")), r"stage-1 holds layer 1, but"),
    (change_shard(1, without("model.norm")), r"lacks model.norm.weight"),
    (change_shard(0, without("embed")), r"lacks model.embed_tokens.weight"),
    (change_shard(0, lambda t: t | {"model.norm.weight": np.ones(8, np.float32)}), r"which belongs to stage-1"),
    (change_shard(0, lambda t: t | {"model.layers.0.x": np.ones(8, np.int32)}), r"is I32; served are"),
    (change_shard(0, lambda t: t | {"evil.weight": np.ones(8, np.float32)}), r"'evil.weight' is not part of"),
    (change_shard(0, lambda t: t | {"embed_tokens.weight": np.ones((24, 8), np.float32)}), r"is there twice"),
    (
        change_shard(1, lambda t: t | {"model.layers.3.mlp.down_proj.weight": np.ones((8, 8), np.float32)}),
        r"layers.3.mlp.down_proj.weight is \[8, 8\], other layers' \[8, 16\]",
    ),
    (unrecorded(change_shard(1, renamed("layers.2", "layers.1"))), r"holds layers 1 to 3 without 2"),
    (unrecorded(change_shard(1, renamed("layers.3", "layers.1"))), r"stage-1 holds layer 1, which an earlier shard"),
    (unrecorded(change_shard(1, without("layers.2"))), r"layer 2 is missing: stage-1 begins with layer 3"),
    (unrecorded(change_shard(1, without("layers.3"))), r"hold 3 layers, config.json says 4"),
    (unrecorded(change_shard(1, without("layers."))), r"stage-1 holds no layer"),
    (lambda folder: (folder / "shards/stage-1").rename(folder / "shards/stage-2"), r"of 2 shards, stage-1 is missing"),
    (lambda folder: (folder / "shards/stage-1").rename(folder / "shards/stage-01"), r"stage-01 is no shard"),
    (lambda folder: (folder / "shards/evil.py").touch(), r"shards/evil.py is no shard"),
    (lambda folder: os.mkfifo(folder / "shards/stage-2"), r"shards/stage-2 is no folder|says 2 stages"),
    (
        lambda folder: (folder / "shards/stage-1/weights.safetensors").rename(folder / "shards/stage-1/weights.pt"),
        r"stage-1 has only pickled weights \(weights.pt\); reading those can run code",
    ),
    (
        lambda folder: (folder / "shards/stage-1/weights.safetensors").write_bytes(
            b"PK\x03\x04\x00\x00\x08\x08data.pkl"
        ),
        r"looks like pickled weights under another name",
    ),
    (link_out("shards"), r"leads out of"),
    (link_out("shards/stage-1"), r"leads out of"),
    (link_out("shards/stage-1/weights.safetensors"), r"leads out of"),
    (link_out("tokenizer/tokenizer.json"), r"leads out of"),
    (link_out("servable.json"), r"leads out of"),
    (lying_header(b"{}", 2**60), r"the header claims 1152921504606846976 bytes"),
    (lying_header(OVERLAPPING), r"overlap"),
    (lying_header(WRONG_SHAPE), r"is 36 bytes, its range 32"),
    (lying_header(OUTSIDE), r"lies outside the"),
    (lying_header(b"[" * 50), r"is not JSON"),
    (lambda folder: (folder / "config.json").unlink(), r"has no config.json"),
    (lambda folder: (folder / "config.json").write_text('{"model_type":"llama","auto_map":{"a":"b"}}'), r"own code"),
    (
        lambda folder: (folder / "tokenizer/tokenizer_config.json").write_text(
            '{"auto_map":{"AutoTokenizer":["x.X"]}}'
        ),
        r"tokenizer_config.json has an auto_map",
    ),
    (lambda folder: (folder / "tokenizer/tokenizer.json").unlink(), r"has no tokenizer"),
]


@pytest.mark.parametrize(("spoil", "words"), HOSTILE, ids=[words[:40] for _, words in HOSTILE])
async def test_an_export_that_is_damaged_or_hostile_is_refused_with_the_reason_and_leaves_nothing(
    root: Path, checkpoint: Path, tmp_path: Path, spoil: Spoil, words: str
):
    folder = make_split_folder(checkpoint, tmp_path / "export", [2], codecs=["int8"])
    spoil(folder)

    with pytest.raises((BadRequest, ServableCorrupt), match=words):
        await import_export(root, folder)
    assert names_in(root) == []
