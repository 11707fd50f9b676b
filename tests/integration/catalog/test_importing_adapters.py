"""LoRA adapters as PEFT saves them: servables of their own, fitted to a base, or refused with the reason."""

import json
import math
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from swarm_core.errors import BadRequest, ServableCorrupt
from swarm_core.manifest import Manifest, manifest_from_json
from swarm_core.servable_parts import AdapterOf, TrainingSplit
from swarm_core.slices import LayerRange, slice_tensors
from swarm_leader.catalog.assemble import assemble
from swarm_leader.catalog.disk import DiskCatalog, find_file, read_range
from swarm_leader.catalog.importer import Hub, Importer
from swarm_leader.catalog.sources.checkpoint import read_checkpoint
from swarm_leader.catalog.sources.read_source import read_source
from swarm_stage.model.adapters.config import read_adapter_config

from tests.integration.catalog.checkpoints import llama_tensors, names_in, nobody_listens, write_checkpoint
from tests.integration.catalog.hub_stub import COMMIT, serve_hub
from tests.servables import adapter_tensors, make_adapter_folder, make_split_adapter_folder

Spoil = Callable[[Path], None]
Q0 = "model.layers.0.self_attn.q_proj"


@pytest.fixture
def checkpoint(catalog: DiskCatalog, tmp_path: Path) -> Path:
    """The folder that org/tiny of the catalog was imported from."""
    return tmp_path / "source"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Manifest]:
    """A checkpoint and its manifest as org/tiny."""
    place = tmp_path_factory.mktemp("tiny")
    source = write_checkpoint(place / "source")
    stop = threading.Event()
    manifest = assemble(read_checkpoint(source), place / "out", "org/tiny", "s", {}, 0, nobody_listens, stop)
    return source, manifest


async def import_adapter(root: Path, folder: Path, base: str = "", model_id: str = "tuned") -> Manifest:
    return await Importer(root).import_source(str(folder), model_id, "", nobody_listens, base_model_id=base)


def set_keys(**keys: Any) -> Spoil:
    """Change adapter_config.json."""

    def spoil(folder: Path) -> None:
        path = folder / "adapter_config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | keys))

    return spoil


def set_tensors(change: Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]) -> Spoil:
    def spoil(folder: Path) -> None:
        path = folder / "adapter_model.safetensors"
        save_file(change(load_file(path)), path)

    return spoil


async def test_an_adapter_becomes_a_servable_of_its_own_with_plain_names(
    root: Path, catalog: DiskCatalog, checkpoint: Path, tmp_path: Path
):
    folder = make_adapter_folder(checkpoint, tmp_path / "a", 4, 1, ("q_proj", "k_proj"), base="somebody/tiny")
    manifest = await import_adapter(root, folder)

    assert manifest.adapter == AdapterOf("org/tiny", 4, ("k_proj", "q_proj"), 2.0)
    base = catalog.get("org/tiny")
    assert (manifest.layer_count, manifest.hidden_size, manifest.model_type) == (base.layer_count, 8, "llama")
    saved = adapter_tensors(checkpoint, 4, 1, ("q_proj", "k_proj"))
    assert {f"base_model.model.{name}" for name in manifest.tensors} == set(saved)
    for name, entry in manifest.tensors.items():
        raw = read_range(find_file(root / "tuned", entry.file), entry.begin, entry.size_bytes)
        assert raw == saved[f"base_model.model.{name}"].tobytes()
    assert all(".layers.1." in name for name in slice_tensors(manifest, LayerRange(1, 2, 2)))
    assert manifest_from_json((root / "tuned/servable.json").read_bytes()) == manifest
    catalog.refresh()
    assert list(catalog.manifests()) == ["org/tiny", "tuned"]


@pytest.mark.parametrize(
    ("asked", "named"),
    [("org/tiny", "/home/somebody/else"), ("", "org/tiny"), ("", "tiny"), ("", "/models/x/tiny/"), ("", "../../tiny")],
)
async def test_the_base_is_the_one_asked_for_or_the_one_the_adapter_names(
    root: Path, checkpoint: Path, tmp_path: Path, asked: str, named: str
):
    manifest = await import_adapter(root, make_adapter_folder(checkpoint, tmp_path / "a", 2, 1, base=named), asked)

    assert manifest.adapter is not None and manifest.adapter.base_model_id == "org/tiny"


async def test_scales_follow_the_config_module_by_module(root: Path, checkpoint: Path, tmp_path: Path):
    folder = make_adapter_folder(checkpoint, tmp_path / "a", 4, 1, ("q_proj", "k_proj"), base="tiny", alpha=8)
    config = {
        "use_rslora": True,
        "rank_pattern": {"layers.0.self_attn.q_proj": 2},
        "alpha_pattern": {"k_proj": 3.0},
    }
    set_keys(**config)(folder)
    shrink = {".lora_A": lambda tensor: tensor[:2], ".lora_B": lambda tensor: tensor[:, :2]}
    set_tensors(
        lambda tensors: {
            name: np.ascontiguousarray(shrink[name[-14:-7]](tensor)) if Q0 in name else tensor
            for name, tensor in tensors.items()
        }
    )(folder)
    manifest = await import_adapter(root, folder)

    assert manifest.adapter is not None
    assert (manifest.adapter.rank, manifest.adapter.scale) == (4, 8 / math.sqrt(4))
    assert dict(manifest.adapter.scales) == {
        Q0: 8 / math.sqrt(2),
        "model.layers.0.self_attn.k_proj": 3 / math.sqrt(4),
        "model.layers.1.self_attn.k_proj": 3 / math.sqrt(4),
    }
    published = json.loads((root / "tuned/adapter_config.json").read_text())
    assert published["rank_pattern"] == {Q0: 2} and set(published["alpha_pattern"]) == set(
        dict(manifest.adapter.scales)
    ) - {Q0}


async def test_a_dora_is_told_apart_and_keeps_its_magnitudes(root: Path, checkpoint: Path, tmp_path: Path):
    folder = make_adapter_folder(checkpoint, tmp_path / "a", 2, 1, ("q_proj",), base="tiny", use_dora=True)
    magnitudes = {
        f"base_model.model.model.layers.{layer}.self_attn.q_proj.lora_magnitude_vector": np.ones(8, np.float32)
        for layer in range(2)
    }
    set_tensors(lambda tensors: tensors | magnitudes)(folder)
    manifest = await import_adapter(root, folder)

    assert manifest.adapter is not None and manifest.adapter.variant == "dora"
    assert manifest.tensors[f"{Q0}.lora_magnitude_vector"].shape == (8,)


async def test_only_what_was_understood_of_a_config_is_published(root: Path, checkpoint: Path, tmp_path: Path):
    folder = make_adapter_folder(checkpoint, tmp_path / "a", 2, 1, base="tiny")
    set_keys(
        auto_mapping={"base_model_class": "os.system", "parent_library": "os"},
        megatron_core="evil.module",
        target_modules="(a+)+$",
        exclude_modules="(b+)+$",
        revision="../../x",
        _private="x",
        unknown=[1],
    )(folder)
    await import_adapter(root, folder)

    published = (root / "tuned/adapter_config.json").read_text()
    assert not [word for word in ("os.system", "evil", "(a+)+", "(b+)+", "../..", "unknown") if word in published]
    assert json.loads(published)["target_modules"] == ["q_proj"]


async def test_an_adapter_of_the_hub_is_fetched_without_the_rest(root: Path, checkpoint: Path, tmp_path: Path):
    repository = make_adapter_folder(checkpoint, tmp_path / "a", 2, 1, base="org/tiny")
    for name in ("adapter_model.bin", "README.md", "tokenizer.json", "training_args.bin"):
        (repository / name).write_bytes(b"x" * 100)
    async with serve_hub(repository) as hub:
        importer = Importer(root, hub=Hub(hub.endpoint))
        manifest = await importer.import_source("org/tiny", "tuned", "", nobody_listens)
        fetched = set(hub.fetched)
        again = await importer.import_source("org/tiny", "tuned", "", nobody_listens)

    assert manifest.adapter is not None and manifest.extra["commit"] == COMMIT
    assert fetched == {"adapter_config.json", "adapter_model.safetensors"}
    assert again == manifest and set(hub.fetched) == fetched


@pytest.mark.parametrize("boundaries", [[1]])
async def test_shards_of_adapters_become_one_adapter_with_the_split_of_training(
    root: Path, checkpoint: Path, tmp_path: Path, boundaries: list[int]
):
    folder = make_split_adapter_folder(
        checkpoint, tmp_path / "e", boundaries, 3, 5, base="org/tiny", codecs=["int8"], quantization={"bits": 4}
    )
    manifest = await import_adapter(root, folder)

    assert manifest.adapter == AdapterOf("org/tiny", 3, ("q_proj",), 2.0)
    assert manifest.split == TrainingSplit((0, 1), True, ("int8",))
    assert manifest.quantization == "nf4"
    saved = adapter_tensors(checkpoint, 3, 5, ("q_proj",))
    for name, entry in manifest.tensors.items():
        raw = read_range(find_file(root / "tuned", entry.file), entry.begin, entry.size_bytes)
        assert raw == saved[f"base_model.model.{name}"].tobytes()
    assert {entry.file for entry in manifest.tensors.values()} == {
        f"shards/stage-{stage}/adapter_model.safetensors" for stage in range(2)
    }


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda folder: (folder / "shards/stage-1/adapter_config.json").unlink(), "stage-1 has no adapter_config.json"),
        (lambda folder: set_keys(lora_alpha=9)(folder / "shards/stage-1"), "another rank or scale than stage-0's"),
        (lambda folder: set_keys(r=600)(folder / "shards/stage-1"), "r is 600, not a rank from 1 to 512"),
        (
            lambda folder: save_file(
                {"model.norm.weight": np.ones(8, np.float32)}, folder / "shards/stage-1/more.safetensors"
            ),
            "'model.norm.weight' is no LoRA pair",
        ),
        (
            lambda folder: (folder / "servable.json").write_text('{"base": "org/nothing"}'),
            "is for 'org/nothing'; the catalog has no model of that name",
        ),
    ],
)
async def test_shards_of_adapters_that_contradict_each_other_are_refused(
    root: Path, checkpoint: Path, tmp_path: Path, spoil: Spoil, words: str
):
    folder = make_split_adapter_folder(checkpoint, tmp_path / "e", [1], 3, 5, base="org/tiny")
    spoil(folder)

    with pytest.raises((BadRequest, ServableCorrupt), match=words):
        await import_adapter(root, folder)
    assert names_in(root) == ["org---tiny"]


def swapped(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A and B change places."""
    names = {
        name: name.replace("lora_A", "x").replace("lora_B", "lora_A").replace("x.w", "lora_B.w") for name in tensors
    }
    return {names[name]: tensor for name, tensor in tensors.items()}


def pickled(folder: Path) -> None:
    (folder / "adapter_model.safetensors").unlink()
    os.mkfifo(folder / "adapter_model.bin")  # opening it would wait for ever


def linked_out(folder: Path) -> None:
    (folder / "adapter_model.safetensors").rename(folder.parent / "outside")
    (folder / "adapter_model.safetensors").symlink_to(folder.parent / "outside")


LONG = 30_000
HOSTILE: list[tuple[Spoil, str]] = [
    (set_keys(r=2**40), r"r is 1099511627776, not a rank from 1 to 512"),
    (set_keys(r=0), r"r is 0, not a rank"),
    (set_keys(r="2"), r"r is 2, not a rank"),
    (set_keys(r=True), r"r is True, not a rank"),
    (set_keys(r=3), r"has rank 2, adapter_config.json says 3"),
    (set_keys(lora_alpha=float("inf")), r"lora_alpha is inf, not a number"),
    (set_keys(lora_alpha=float("nan")), r"lora_alpha is nan, not a number"),
    (set_keys(lora_alpha=1e300), r"lora_alpha is 1e\+300, not a number"),
    (set_keys(lora_alpha=None), r"lora_alpha is None, not a number"),
    (set_keys(use_rslora="yes"), r"use_rslora is yes, neither"),
    (set_keys(use_dora=True), r"has magnitudes None, which a dora"),
    (set_keys(peft_type="IA3"), r"adapter is a 'IA3'; LORA is served"),
    (set_keys(peft_type={"a": 1}), r"LORA is served"),
    (set_keys(bias="all"), r"sets bias 'all'"),
    (set_keys(lora_bias=True), r"sets lora_bias"),
    (set_keys(modules_to_save=["lm_head"]), r"sets modules_to_save"),
    (set_keys(trainable_token_indices=[1]), r"sets trainable_token_indices"),
    (set_keys(layer_replication=[[0, 1]]), r"sets layer_replication"),
    (set_keys(target_parameters=["x"]), r"sets target_parameters"),
    (set_keys(alora_invocation_tokens=[1]), r"sets alora_invocation_tokens"),
    (set_keys(init_lora_weights="pissa"), r"init_lora_weights 'pissa', which changes the base's own weights"),
    (set_keys(init_lora_weights={"a": 1}), r"init_lora_weights"),
    (set_keys(auto_map={"AutoModel": "evil.Evil"}), r"brings its own code"),
    (
        set_keys(rank_pattern={"(a+)+$": 2}),
        r"'\(a\+\)\+\$', which is not the end of a module's path; patterns are not run",
    ),
    (set_keys(alpha_pattern={".*": 2}), r"patterns are not run"),
    (set_keys(alpha_pattern={"a" * LONG: 2}), r"patterns are not run"),
    (set_keys(alpha_pattern=[1]), r"alpha_pattern is no object"),
    (set_keys(alpha_pattern={f"m{n}": 1 for n in range(20_001)}), r"alpha_pattern is no object of at most 20000"),
    (set_keys(rank_pattern={"q_proj": 10**9}), r"rank_pattern is 1000000000, not a rank"),
    (set_keys(alpha_pattern={"q_proj": "x"}), r"alpha_pattern is x, not a number"),
    (set_keys(base_model_name_or_path="../../../etc/passwd"), r"the catalog has no model of that name"),
    (set_keys(base_model_name_or_path=["x"]), r"base_model_name_or_path is .*, not a name"),
    (set_keys(base_model_name_or_path="x" * 600), r"not a name"),
    (set_keys(base_model_name_or_path=None), r"is for ''; the catalog has no model of that name"),
    (lambda folder: (folder / "adapter_config.json").write_text("{"), r"adapter_config.json is not JSON"),
    (lambda folder: (folder / "adapter_config.json").write_text('{"r": 1, "r": 2}'), r"'r' appears twice"),
    (lambda folder: (folder / "adapter_config.json").write_text(" " * 2**21), r"adapter_config.json has 2097152 bytes"),
    (pickled, r"weights are pickled \(adapter_model.bin\)"),
    (linked_out, r"leads out of"),
    (lambda folder: (folder / "adapter_model.safetensors").unlink(), r"adapter_model.safetensors is missing"),
    (lambda folder: (folder / "adapter_model.safetensors").write_bytes(b"\x80\x02}q\x00." * 9), r"looks like pickled"),
    (set_tensors(lambda tensors: {}), r"has no tensors"),
    (set_tensors(swapped), r"A is .* and B .*; of org/tiny they are \[rank, 8\] and \[8, rank\].*--base MODEL"),
    (
        set_tensors(lambda t: {n: x for n, x in t.items() if n != f"base_model.model.{Q0}.lora_A.weight"}),
        r"no whole pair",
    ),
    (set_tensors(lambda t: {n: x.astype(np.int32) for n, x in t.items()}), r"is I32; served are"),
    (
        set_tensors(lambda t: {n.replace("q_proj", "z_proj"): x for n, x in t.items()}),
        r"z_proj is not a linear layer of",
    ),
    (
        set_tensors(lambda t: {n.replace("layers.1", "layers.7"): x for n, x in t.items()}),
        r"layers.7.* is not a linear",
    ),
    (
        set_tensors(lambda t: {n.replace("self_attn.q_proj", "input_layernorm"): x for n, x in t.items()}),
        r"input_layernorm is not a linear layer",
    ),
    (
        set_tensors(lambda t: {n.replace("model.layers.0.self_attn.q_proj", "lm_head"): x for n, x in t.items()}),
        r"lm_head is outside the layers",
    ),
    (
        set_tensors(lambda t: t | {"base_model.model.lm_head.weight": np.ones((24, 8), np.float32)}),
        r"'base_model.model.lm_head.weight' is no LoRA pair",
    ),
    (
        set_tensors(
            lambda t: t | {"base_model.model.model.embed_tokens.lora_embedding_A": np.ones((2, 24), np.float32)}
        ),
        r"is of a trainable embedding",
    ),
    (
        set_tensors(lambda t: t | {n.replace(".weight", ".default.weight"): x for n, x in t.items()}),
        r"is there twice under different names",
    ),
    (
        set_tensors(lambda t: t | {"../../x.lora_A.weight": np.ones((2, 8), np.float32)}),
        r"is of a kind of adapter that is not served",
    ),
]


@pytest.mark.parametrize(("spoil", "words"), HOSTILE, ids=[words[:40] for _, words in HOSTILE])
def test_an_adapter_that_is_damaged_or_hostile_is_refused_with_the_reason(
    tiny: tuple[Path, Manifest], tmp_path: Path, spoil: Spoil, words: str
):
    checkpoint, base = tiny
    folder = make_adapter_folder(checkpoint, tmp_path / "adapter", 2, 1, base="org/tiny")
    spoil(folder)

    with pytest.raises((BadRequest, ServableCorrupt), match=words):
        read_source(folder, "", {"org/tiny": base})


@pytest.mark.parametrize(("spoil", "words"), [HOSTILE[0], (pickled, "pickled"), (linked_out, "leads out of")])
async def test_an_adapter_that_is_refused_leaves_nothing(
    root: Path, checkpoint: Path, tmp_path: Path, spoil: Spoil, words: str
):
    folder = make_adapter_folder(checkpoint, tmp_path / "adapter", 2, 1, base="org/tiny")
    spoil(folder)

    with pytest.raises((BadRequest, ServableCorrupt), match=words):
        await import_adapter(root, folder)
    assert names_in(root) == ["org---tiny"]


async def test_a_base_is_a_whole_model_of_the_catalog_and_one_alone(root: Path, checkpoint: Path, tmp_path: Path):
    folder = make_adapter_folder(checkpoint, tmp_path / "a", 2, 1, base="tiny")
    await import_adapter(root, folder)
    with pytest.raises(
        BadRequest, match=r"asked for is 'tuned'; the catalog has only an adapter of that.*--base: org/tiny"
    ):
        await import_adapter(root, folder, base="tuned", model_id="second")
    await Importer(root).import_source(str(checkpoint), "other/tiny", "", nobody_listens)
    with pytest.raises(BadRequest, match=r"2 models of that name \(org/tiny, other/tiny\)"):
        await import_adapter(root, folder, model_id="second")
    with pytest.raises(BadRequest, match="a base belongs to a LoRA adapter"):
        await Importer(root).import_source(str(checkpoint), "third", "", nobody_listens, base_model_id="org/tiny")

    assert (await import_adapter(root, folder, "other/tiny", "second")).adapter is not None


async def test_an_adapter_whose_base_went_away_or_changed_is_listed_as_broken(
    root: Path, catalog: DiskCatalog, checkpoint: Path, tmp_path: Path
):
    await import_adapter(root, make_adapter_folder(checkpoint, tmp_path / "a", 2, 1, base="tiny"))
    (root / "org---tiny").rename(tmp_path / "gone")
    catalog.refresh()
    assert catalog.broken() == {"tuned": "its base org/tiny is not in the catalog, or broken"}

    three = llama_tensors() | {
        name.replace("rs.0", "rs.2"): tensor for name, tensor in llama_tensors().items() if "rs.0" in name
    }
    larger = write_checkpoint(tmp_path / "larger", {"num_hidden_layers": 3}, three)
    await Importer(root).import_source(str(larger), "org/tiny", "", nobody_listens)
    catalog.refresh()
    assert catalog.broken() == {"tuned": "its base org/tiny has 3 layers, it was made for 2"}

    wider = {name: np.ones((12, 8), np.float32) if "q_proj" in name else x for name, x in llama_tensors().items()}
    await Importer(root).import_source(
        str(write_checkpoint(tmp_path / "wider", tensors=wider)), "org/tiny", "", nobody_listens
    )
    catalog.refresh()
    assert (
        "does not fit its base: model.layers.0.self_attn.q_proj: A is [2, 8] and B [8, 2]" in catalog.broken()["tuned"]
    )


async def test_stages_read_of_the_published_config_the_scales_that_the_manifest_has(
    root: Path, checkpoint: Path, tmp_path: Path
):
    """A stage is handed the folder and not the manifest."""
    folder = make_adapter_folder(checkpoint, tmp_path / "a", 4, 1, ("q_proj", "k_proj"), base="tiny", alpha=6)
    set_keys(use_rslora=True, alpha_pattern={"layers.1.self_attn.k_proj": 5, "k_proj": 3.5})(folder)
    manifest = await import_adapter(root, folder)
    assert manifest.adapter is not None

    config = read_adapter_config(root / "tuned")
    own = dict(manifest.adapter.scales)
    modules = {name.partition(".lora_")[0] for name in manifest.tensors}
    assert {module: config.scale_of(module) for module in modules} == {
        module: pytest.approx(own.get(module, manifest.adapter.scale)) for module in modules
    }
    assert len(set(own.values())) == 2
