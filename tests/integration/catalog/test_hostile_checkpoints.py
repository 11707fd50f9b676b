"""A checkpoint's folder as an attack: links, pipes, pickles, lying indexes, files that change while they are read."""

import json
import os
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file
from swarm_core.errors import BadRequest, ServableCorrupt
from swarm_core.manifest import manifest_from_json
from swarm_leader.catalog.assemble import assemble
from swarm_leader.catalog.disk import DiskCatalog, read_range
from swarm_leader.catalog.files import read_small
from swarm_leader.catalog.importer import Importer
from swarm_leader.catalog.sources.checkpoint import read_checkpoint

from tests.integration.catalog.checkpoints import llama_tensors, names_in, nobody_listens, write_checkpoint

PICKLED = b"\x80\x02}q\x00X\x01\x00\x00\x00aq\x01K\x01s."
ZIPPED = b"PK\x03\x04\x00\x00\x08\x08" + b"archive/data.pkl" * 8


async def import_folder(root: Path, folder: Path, model_id: str = "tiny"):
    """Import with an importer of its own."""
    return await Importer(root).import_source(str(folder), model_id, "", nobody_listens)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A good checkpoint, to be spoiled."""
    return write_checkpoint(tmp_path / "source")


@pytest.mark.parametrize(
    "name", ["pytorch_model.bin", "model.PT", "consolidated.00.pth", "x.ckpt", "w.pkl", "w.pickle"]
)
async def test_a_checkpoint_of_pickles_alone_is_refused_by_name(root: Path, source: Path, name: str):
    (source / "model.safetensors").unlink()
    os.mkfifo(source / name)  # opening it would wait for ever

    with pytest.raises(BadRequest, match=rf"pickled \({name}\).*Convert them"):
        await import_folder(root, source)
    assert names_in(root) == []


async def test_pickles_beside_good_weights_are_neither_opened_nor_published(root: Path, source: Path):
    for name in ("pytorch_model.bin", "training_args.bin", "optimizer.pt", "modeling_evil.py", "tokenizer.py"):
        os.mkfifo(source / name)
    await import_folder(root, source)

    published = {path.name for path in (root / "tiny").rglob("*")}
    assert not {"pytorch_model.bin", "training_args.bin", "optimizer.pt", "modeling_evil.py"} & published


@pytest.mark.parametrize("raw", [PICKLED, ZIPPED])
async def test_a_pickle_named_safetensors_is_seen_for_what_it_is(root: Path, source: Path, raw: bytes):
    (source / "model.safetensors").write_bytes(raw)

    with pytest.raises(ServableCorrupt, match="looks like pickled weights under another name"):
        await import_folder(root, source)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"])
@pytest.mark.parametrize("kind", ["pipe", "folder", "device", "socket-like link", "circle"])
async def test_what_is_no_plain_file_is_refused_at_once(root: Path, source: Path, name: str, kind: str):
    path = source / name
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "socket-like link":
        path.symlink_to("/proc/self/fd/0")
    else:
        path.symlink_to(path.name)
    begun_s = time.monotonic()

    with pytest.raises((BadRequest, ServableCorrupt)):
        await import_folder(root, source)
    assert time.monotonic() - begun_s < 10
    assert names_in(root) == []


async def test_a_link_that_leaves_the_folder_through_another_link_is_refused(root: Path, source: Path, tmp_path: Path):
    (tmp_path / "outside").mkdir()
    (source / "tokenizer.json").rename(tmp_path / "outside/tokenizer.json")
    (source / "inner").symlink_to(tmp_path / "outside")
    (source / "tokenizer.json").symlink_to("inner/tokenizer.json")

    with pytest.raises(BadRequest, match="leads out of"):
        await import_folder(root, source)


async def test_blobs_of_a_false_cache_do_not_open_the_rest_of_the_disk(root: Path, tmp_path: Path):
    """Links into blobs/ are allowed beside snapshots/; when blobs/ itself is a link, they lead elsewhere."""
    secret = tmp_path / "secret"
    real = write_checkpoint(secret)
    snapshot = tmp_path / "cache/snapshots/abc"
    snapshot.mkdir(parents=True)
    (tmp_path / "cache/blobs").symlink_to(secret)
    for path in real.iterdir():
        (snapshot / path.name).symlink_to(Path("../../blobs") / path.name)

    with pytest.raises(BadRequest, match="leads out of"):
        await import_folder(root, snapshot)


async def test_an_index_in_other_letters_or_with_a_name_twice_is_refused(root: Path, tmp_path: Path):
    source = write_checkpoint(tmp_path / "source", shards=2)
    index = source / "model.safetensors.index.json"
    good = index.read_text()
    index.write_text(good.replace("model-00001", "MODEL-00001"))
    with pytest.raises(ServableCorrupt, match=r"MODEL-00001-of-00002.safetensors is missing"):
        await import_folder(root, source)

    index.write_text(
        good.replace('"weight_map": {', '"weight_map": {"model.norm.weight": "model-00001-of-00002.safetensors", ')
    )
    with pytest.raises(ServableCorrupt, match=r"'model.norm.weight' appears twice"):
        await import_folder(root, source)


async def test_a_tensor_that_two_files_hold_is_refused(root: Path, tmp_path: Path):
    """Whichever the index names, another reader would take the other one."""
    source = write_checkpoint(tmp_path / "source", shards=2)
    document = json.loads((source / "model.safetensors.index.json").read_text())
    own = {
        name: tensor
        for name, tensor in llama_tensors().items()
        if document["weight_map"][name].startswith("model-00002")
    }
    save_file(
        own | {"model.embed_tokens.weight": np.zeros((24, 8), np.float32)}, source / "model-00002-of-00002.safetensors"
    )

    with pytest.raises(
        ServableCorrupt, match=r"'model.embed_tokens.weight' is both in model-00001.* and in model-00002"
    ):
        await import_folder(root, source)


async def test_an_index_of_thousands_of_files_is_refused(root: Path, tmp_path: Path):
    source = write_checkpoint(tmp_path / "source", shards=2)
    weight_map = {f"model.layers.0.w{number}": f"model-{number}.safetensors" for number in range(5000)}
    (source / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))

    with pytest.raises(ServableCorrupt, match="names 5000 files, more than 4096"):
        await import_folder(root, source)


@pytest.mark.parametrize(
    "name", ["model.layers.0.a/../b", "model.layers.0.a\nb", "model.layers.0." + "x" * 300, "model.layers.0.\x1b[2J"]
)
async def test_a_tensor_whose_name_is_no_plain_name_is_refused(root: Path, tmp_path: Path, name: str):
    tensors = llama_tensors() | {name: np.ones(2, np.float32)}
    with pytest.raises(ServableCorrupt, match="not a tensor's name"):
        await import_folder(root, write_checkpoint(tmp_path / "source", tensors=tensors))


@pytest.mark.parametrize("number", ["\u0663", "00", "9" * 5000, "-1", "2"])
async def test_a_layer_that_the_model_does_not_have_is_refused(root: Path, tmp_path: Path, number: str):
    tensors = llama_tensors() | {f"model.layers.{number}.mlp.weight": np.ones(2, np.float32)}
    words = "is not part of a llama text model of 2 layers|is not a tensor's name"
    with pytest.raises((BadRequest, ServableCorrupt), match=words):
        await import_folder(root, write_checkpoint(tmp_path / "source", tensors=tensors))


async def test_more_layers_than_there_are_tensors_are_refused_at_once(root: Path, tmp_path: Path):
    begun_s = time.monotonic()
    with pytest.raises(ServableCorrupt, match=r"num_hidden_layers is 2147483647|lacks layer 2, layer 3"):
        await import_folder(root, write_checkpoint(tmp_path / "a", config={"num_hidden_layers": 2**31 - 1}))
    with pytest.raises(ServableCorrupt, match=r"lacks layer 2, layer 3|tensors for 1000 layers"):
        await import_folder(root, write_checkpoint(tmp_path / "b", config={"num_hidden_layers": 1000}))

    assert time.monotonic() - begun_s < 10
    assert names_in(root) == []


def test_a_header_of_a_million_tensors_is_refused_quickly(tmp_path: Path):
    source = write_checkpoint(tmp_path / "source")
    entry = b'{"dtype":"F32","shape":[0],"data_offsets":[0,0]}'
    raw = b"{" + b",".join(b'"t%d":%s' % (number, entry) for number in range(1_000_000)) + b"}"
    (source / "model.safetensors").write_bytes(len(raw).to_bytes(8, "little") + raw)
    begun_s = time.monotonic()

    with pytest.raises(ServableCorrupt, match="the header claims"):
        read_checkpoint(source)
    assert time.monotonic() - begun_s < 5


async def test_a_folder_of_too_many_files_is_no_checkpoint(root: Path, source: Path):
    for number in range(10_001):
        (source / f"{number}").touch()

    with pytest.raises(BadRequest, match="more than 10000 files"):
        await import_folder(root, source)


@pytest.mark.parametrize(
    ("name", "size_bytes"), [("config.json", 2**20), ("generation_config.json", 2**20), ("tokenizer.json", 2**26)]
)
async def test_a_small_file_that_is_large_is_refused_unread(root: Path, source: Path, name: str, size_bytes: int):
    os.truncate(source / name, size_bytes + 1)  # a hole: takes no room

    with pytest.raises(BadRequest, match=f"{name} has {size_bytes + 1} bytes, more than {size_bytes}"):
        await import_folder(root, source)


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "config.json"])
@pytest.mark.parametrize("how", ["rewritten", "replaced", "removed", "made a link"])
def test_a_file_that_changes_while_it_is_imported_publishes_nothing(source: Path, tmp_path: Path, name: str, how: str):
    """Every step of the change lies between two steps of the import."""
    checkpoint = read_checkpoint(source)
    path, secret = source / name, tmp_path / "secret"
    secret.write_bytes(path.read_bytes().replace(b"llama", b"wrong"))
    if how == "rewritten":
        path.write_bytes(path.read_bytes()[:-4] + b"    ")
        os.utime(path, ns=(1, 1))
    else:
        path.unlink()
    if how == "replaced":
        secret.rename(path)
    if how == "made a link":
        path.symlink_to(secret)

    with pytest.raises((ServableCorrupt, OSError)):
        assemble(checkpoint, tmp_path / "out", "tiny", "s", {}, 0, nobody_listens, threading.Event())
    assert not (tmp_path / "out/servable.json").exists()


def test_a_pipe_put_in_the_place_of_a_file_is_not_waited_for(tmp_path: Path):
    os.mkfifo(tmp_path / "a.safetensors")

    with pytest.raises(ServableCorrupt, match="no plain file"):
        read_range(tmp_path / "a.safetensors", 0, 10)
    with pytest.raises(ServableCorrupt, match="no plain file"):
        read_small(tmp_path / "a.safetensors", 10)


async def test_a_source_of_odd_letters_is_noted_in_plain_ones(root: Path, tmp_path: Path):
    """servable.json is shown in terminals; and what it holds must be readable again."""
    manifest = await import_folder(root, write_checkpoint(tmp_path / "odd\n\x1b[31m\u202ename"))

    assert manifest.source.isprintable() and manifest.source.endswith("name")
    assert manifest_from_json((root / "tiny/servable.json").read_bytes()) == manifest


async def test_one_hostile_servable_does_not_hide_the_others(catalog: DiskCatalog, root: Path):
    """Also not in the list that goes over the wire, whose counters and texts have bounds of their own."""
    document = json.loads((root / "org---tiny/servable.json").read_text())
    for number, change in enumerate(
        [{"source": "\ud800"}, {"created_s": 2**65}, {"layer_count": 2**40}, {"model_type": "\x1b[2J"}]
    ):
        folder = root / f"bad{number}"
        folder.mkdir()
        (folder / "servable.json").write_text(json.dumps({**document, "model_id": f"bad{number}", **change}))
    os.mkfifo(root / "bad0/fifo")
    (root / "bad9").mkdir()
    os.mkfifo(root / "bad9/servable.json")
    catalog.refresh()

    assert list(catalog.manifests()) == ["org/tiny"]
    assert len(catalog.broken()) == 5
