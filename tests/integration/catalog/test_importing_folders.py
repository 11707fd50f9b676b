"""Hugging Face folders: what is taken, under which names, and what is refused with which words."""

import hashlib
import json
import os
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from swarm_core.errors import BadRequest, Conflict, ServableCorrupt
from swarm_core.manifest import manifest_from_json
from swarm_leader.catalog.disk import DiskCatalog, find_file, read_range
from swarm_leader.catalog.importer import Importer

from tests.integration.catalog.checkpoints import LAYERS, llama_tensors, names_in, nobody_listens, write_checkpoint


async def import_folder(root: Path, folder: Path, model_id: str = "tiny", **options):
    """Import with an importer of its own."""
    return await Importer(root, **options).import_source(str(folder), model_id, "", nobody_listens)


@pytest.mark.parametrize("shards", [1, 3])
async def test_every_tensor_can_be_read_and_verified_by_its_manifest_entry(root: Path, tmp_path: Path, shards: int):
    tensors = llama_tensors(seed=3)
    manifest = await import_folder(root, write_checkpoint(tmp_path / "source", tensors=tensors, shards=shards))

    assert set(manifest.tensors) == set(tensors)
    for name, entry in manifest.tensors.items():
        raw = read_range(find_file(root / "tiny", entry.file), entry.begin, entry.size_bytes)
        assert raw == tensors[name].tobytes()
        assert hashlib.sha256(raw).hexdigest() == entry.sha256
        assert (entry.dtype, entry.shape) == ("F32", tensors[name].shape)


async def test_the_manifest_on_disk_is_the_one_returned_and_lists_the_small_files(root: Path, tmp_path: Path):
    manifest = await import_folder(root, write_checkpoint(tmp_path / "source"), "org/tiny")

    folder = root / "org---tiny"
    assert manifest_from_json((folder / "servable.json").read_bytes()) == manifest
    assert (manifest.layer_count, manifest.hidden_size, manifest.vocabulary_size) == (LAYERS, 8, 24)
    assert (manifest.kv_heads, manifest.head_dim, manifest.context_tokens_max) == (2, 2, 128)
    assert manifest.tied_embeddings and manifest.source == str(tmp_path / "source")
    assert manifest.extra["attention_heads"] == 4
    assert set(manifest.files) == {
        "config.json",
        "generation_config.json",
        "tokenizer/tokenizer.json",
        "tokenizer/tokenizer_config.json",
    }
    for name, entry in manifest.files.items():
        content = (folder / name).read_bytes()
        assert (len(content), hashlib.sha256(content).hexdigest()) == (entry.size_bytes, entry.sha256)


async def test_keys_that_name_the_machine_a_config_came_from_are_dropped(root: Path, tmp_path: Path):
    await import_folder(root, write_checkpoint(tmp_path / "source"))

    config = json.loads((root / "tiny/config.json").read_text())
    assert "_name_or_path" not in config and config["hidden_size"] == 8
    assert json.loads((root / "tiny/generation_config.json").read_text()) == {"eos_token_id": 2}


async def test_weights_take_no_second_place_on_the_same_disk(root: Path, tmp_path: Path):
    source = write_checkpoint(tmp_path / "source")
    await import_folder(root, source)

    assert (root / "tiny/base/model.safetensors").samefile(source / "model.safetensors")


async def test_weights_on_another_file_system_are_copied(root: Path, tmp_path: Path):
    other = Path("/dev/shm") / f"swarm-test-{os.getpid()}"
    source = write_checkpoint(other)
    try:
        manifest = await import_folder(root, source)
        assert load_file(root / "tiny/base/model.safetensors").keys() == manifest.tensors.keys()
    finally:
        for path in other.iterdir():
            path.unlink()
        other.rmdir()
    catalog = DiskCatalog(root)
    catalog.refresh()
    assert catalog.get("tiny") == manifest


async def test_a_folder_of_the_hugging_face_cache_is_imported_through_its_links(root: Path, tmp_path: Path):
    cache = tmp_path / "models--org--tiny"
    real = write_checkpoint(cache / "blobs")
    snapshot = cache / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    for path in real.iterdir():
        (snapshot / path.name).symlink_to(Path("../../blobs") / path.name)
    manifest = await import_folder(root, snapshot, "")

    assert manifest.model_id == "org/tiny"
    assert not (root / "org---tiny/base/model.safetensors").is_symlink()


async def test_the_same_source_again_is_harmless(root: Path, tmp_path: Path):
    source = write_checkpoint(tmp_path / "source")
    first = await import_folder(root, source)
    stamp = (root / "tiny/servable.json").stat().st_mtime_ns

    assert await import_folder(root, source, is_loaded=lambda model_id: True) == first
    assert (root / "tiny/servable.json").stat().st_mtime_ns == stamp


async def test_another_source_replaces_a_model_that_is_not_loaded(root: Path, tmp_path: Path):
    await import_folder(root, write_checkpoint(tmp_path / "one"))
    second = await import_folder(root, write_checkpoint(tmp_path / "two", tensors=llama_tensors(seed=9)))

    catalog = DiskCatalog(root)
    catalog.refresh()
    assert catalog.get("tiny") == second
    assert names_in(root) == ["tiny"]


async def test_another_source_does_not_replace_a_loaded_model(root: Path, tmp_path: Path):
    first = await import_folder(root, write_checkpoint(tmp_path / "one"))

    with pytest.raises(Conflict, match="loaded"):
        await import_folder(root, write_checkpoint(tmp_path / "two"), is_loaded=lambda model_id: True)
    catalog = DiskCatalog(root)
    catalog.refresh()
    assert catalog.get("tiny") == first


async def test_a_damaged_servable_is_repaired_by_the_same_source(root: Path, tmp_path: Path):
    source = write_checkpoint(tmp_path / "source")
    await import_folder(root, source)
    (root / "tiny/tokenizer/tokenizer.json").unlink()
    await import_folder(root, source)

    catalog = DiskCatalog(root)
    catalog.refresh()
    assert catalog.broken() == {}


async def test_a_head_that_repeats_tied_embeddings_is_dropped(root: Path, tmp_path: Path):
    manifest = await import_folder(root, write_checkpoint(tmp_path / "source", tensors=llama_tensors(tied=False)))

    assert "lm_head.weight" not in manifest.tensors


async def test_a_head_of_its_own_is_kept(root: Path, tmp_path: Path):
    source = write_checkpoint(
        tmp_path / "source", config={"tie_word_embeddings": None}, tensors=llama_tensors(tied=False)
    )
    manifest = await import_folder(root, source)

    assert "lm_head.weight" in manifest.tensors and not manifest.tied_embeddings


@pytest.mark.parametrize(
    ("rename", "config"),
    [
        (lambda name: f"language_model.{name}", {}),
        (lambda name: name.removeprefix("model."), {}),
    ],
)
async def test_names_of_other_wrappings_are_made_the_usual_ones(root: Path, tmp_path: Path, rename, config):
    tensors = {rename(name): tensor for name, tensor in llama_tensors().items()}
    manifest = await import_folder(root, write_checkpoint(tmp_path / "source", config=config, tensors=tensors))

    assert set(manifest.tensors) == set(llama_tensors())


async def test_rotary_tables_are_left_out(root: Path, tmp_path: Path):
    tensors = llama_tensors() | {"model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(4, np.float32)}
    manifest = await import_folder(root, write_checkpoint(tmp_path / "source", tensors=tensors))

    assert set(manifest.tensors) == set(llama_tensors())


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"model_type": "mamba"}, "'mamba' is not served; served are .*llama, mistral"),
        ({"auto_map": {"AutoModel": "modeling_x.X"}}, "brings its own code"),
        ({"quantization_config": {"quant_method": "gptq"}}, r"already quantised \(gptq\)"),
        ({"num_hidden_layers": "two"}, "num_hidden_layers is two, not a whole number"),
        ({"hidden_size": None}, "hidden_size is None, not a count"),
        ({"vocab_size": 25}, r"embed_tokens.weight is \[24, 8\], config.json promises \[25, 8\]"),
        ({"num_hidden_layers": 3}, "lacks layer 2"),
        ({"num_hidden_layers": 1}, "model.layers.1.* is not part of a llama text model of 1 layers"),
        ({"tie_word_embeddings": False}, "lacks lm_head.weight"),
    ],
)
async def test_a_config_that_cannot_be_served_is_refused_by_name(root: Path, tmp_path: Path, config, words: str):
    source = write_checkpoint(tmp_path / "source", config=config)

    with pytest.raises((BadRequest, ServableCorrupt), match=words):
        await import_folder(root, source)
    assert names_in(root) == []


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ({"model.vision_tower.weight": np.ones(2, np.float32)}, "'model.vision_tower.weight' is not part of"),
        ({"score.weight": np.ones(2, np.float32)}, "'score.weight' is not part of"),
        ({"model.layers.0.qweight": np.ones(2, np.int32)}, "'model.layers.0.qweight' is I32"),
    ],
)
async def test_a_tensor_that_has_no_place_in_a_text_model_is_refused_by_name(
    root: Path, tmp_path: Path, extra, words: str
):
    source = write_checkpoint(tmp_path / "source", tensors=llama_tensors() | extra)

    with pytest.raises(BadRequest, match=words):
        await import_folder(root, source)


async def test_pickled_weights_are_refused(root: Path, tmp_path: Path):
    source = write_checkpoint(tmp_path / "source")
    (source / "model.safetensors").rename(source / "pytorch_model.bin")

    with pytest.raises(BadRequest, match=r"pickled \(pytorch_model.bin\).*Convert them"):
        await import_folder(root, source)


async def test_a_tokenizer_with_its_own_code_is_refused(root: Path, tmp_path: Path):
    source = write_checkpoint(tmp_path / "source")
    (source / "tokenizer_config.json").write_text('{"auto_map": {"AutoTokenizer": ["x.X", null]}}')

    with pytest.raises(BadRequest, match=r"tokenizer_config.json has an auto_map"):
        await import_folder(root, source)


@pytest.mark.parametrize("missing", ["config.json", "tokenizer.json", "model.safetensors"])
async def test_a_folder_without_a_part_is_refused(root: Path, tmp_path: Path, missing: str):
    source = write_checkpoint(tmp_path / "source")
    (source / missing).unlink()

    with pytest.raises(BadRequest, match=r"no config.json|no tokenizer|no weights"):
        await import_folder(root, source)


@pytest.mark.parametrize(
    "file", ["../outside.safetensors", "/etc/passwd", "a/b.safetensors", ".hidden.safetensors", "model.bin", "", 7]
)
async def test_an_index_that_leads_elsewhere_is_refused(root: Path, tmp_path: Path, file):
    source = write_checkpoint(tmp_path / "source", shards=2)
    index = source / "model.safetensors.index.json"
    document = json.loads(index.read_text())
    document["weight_map"]["model.norm.weight"] = file
    index.write_text(json.dumps(document))

    with pytest.raises(ServableCorrupt, match="not a safetensors file beside it"):
        await import_folder(root, source)


async def test_an_index_that_promises_more_than_there_is_is_refused(root: Path, tmp_path: Path):
    source = write_checkpoint(tmp_path / "source", shards=2)
    index = source / "model.safetensors.index.json"
    index.write_text(index.read_text().replace("model.norm.weight", "model.layers.0.other.weight"))

    with pytest.raises(ServableCorrupt, match=r"promises 'model.layers.0.other.weight'"):
        await import_folder(root, source)


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "config.json"])
async def test_a_link_out_of_the_checkpoint_is_refused(root: Path, tmp_path: Path, name: str):
    source = write_checkpoint(tmp_path / "source")
    secret = tmp_path / "secret"
    (source / name).rename(secret)
    (source / name).symlink_to(secret)

    with pytest.raises(BadRequest, match="leads out of"):
        await import_folder(root, source)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("", "the source is empty"),
        ("/nowhere/at/all", "no such folder or file: /nowhere/at/all on the leader's machine$"),
        ("./nope", "no such folder or file: ./nope on the leader's machine$"),
        ("~/nope", "no such folder or file: ~/nope on the leader's machine$"),
        ("nonsense", r"no such folder or file: nonsense .*, and it is no hub id \(org/name\)$"),
        ("org/model.gguf", "no such folder or file: org/model.gguf on the leader's machine$"),
        ("x" * 300, "cannot be read on the leader's machine: File name too long"),
        (__file__, "not a .gguf"),
    ],
)
@pytest.mark.parametrize("model_id", ["m", ""])
async def test_a_source_that_is_nothing_is_refused(root: Path, source: str, words: str, model_id: str):
    with pytest.raises(BadRequest, match=words):
        await Importer(root).import_source(source, model_id, "", nobody_listens)


async def test_a_config_that_names_no_family_is_refused_with_its_folder(root: Path, tmp_path: Path):
    source = write_checkpoint(tmp_path / "source")
    (source / "config.json").write_text("{}")

    with pytest.raises(BadRequest, match=f"^config.json of {source} names no model_type$"):
        await import_folder(root, source)


async def test_a_revision_of_a_folder_is_refused(root: Path, tmp_path: Path):
    source = write_checkpoint(tmp_path / "source")

    with pytest.raises(BadRequest, match="revision"):
        await Importer(root).import_source(str(source), "m", "main", nobody_listens)
