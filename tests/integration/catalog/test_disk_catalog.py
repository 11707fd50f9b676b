"""The list of servables: complete, cheap, and never broken by what lies beside it."""

import json
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from swarm_core.errors import ModelNotFound, ServableCorrupt
from swarm_leader.catalog.disk import DiskCatalog


def copy_servable(root: Path, name: str, model_id: str | None = None) -> Path:
    """Another servable like org/tiny."""
    folder = root / name
    shutil.copytree(root / "org---tiny", folder)
    manifest = json.loads((folder / "servable.json").read_text())
    manifest["model_id"] = model_id or name
    (folder / "servable.json").write_text(json.dumps(manifest))
    return folder


def test_an_empty_or_missing_root_is_an_empty_catalog(tmp_path: Path):
    catalog = DiskCatalog(tmp_path / "missing")
    catalog.refresh()

    assert (catalog.manifests(), catalog.broken()) == ({}, {})
    with pytest.raises(ModelNotFound, match="available: none yet"):
        catalog.get("x")


def test_a_folder_name_writes_slashes_as_dashes(catalog: DiskCatalog, root: Path):
    assert list(catalog.manifests()) == ["org/tiny"]
    assert catalog.folder("org/tiny") == root / "org---tiny"
    assert catalog.manifest_json("org/tiny") == (root / "org---tiny/servable.json").read_bytes()


def test_an_unknown_model_is_told_what_exists(catalog: DiskCatalog, root: Path):
    copy_servable(root, "other")
    catalog.refresh()

    with pytest.raises(ModelNotFound, match="available: org/tiny, other") as refused:
        catalog.get("org/tinny")
    assert refused.value.facts["available"] == "org/tiny, other"


def _remove_weights(folder: Path) -> None:
    (folder / "base/model.safetensors").unlink()


def _cut_weights(folder: Path) -> None:
    os.truncate(folder / "base/model.safetensors", 100)


def _grow_config(folder: Path) -> None:
    (folder / "config.json").write_text((folder / "config.json").read_text() + " ")


def _drop_config(folder: Path) -> None:
    manifest = json.loads((folder / "servable.json").read_text())
    del manifest["files"]["config.json"]
    (folder / "servable.json").write_text(json.dumps(manifest))


def _lose_manifest(folder: Path) -> None:
    (folder / "servable.json").unlink()


def _break_manifest(folder: Path) -> None:
    (folder / "servable.json").write_text("{")


def _link_out(folder: Path) -> None:
    (folder / "tokenizer/tokenizer.json").unlink()
    (folder / "tokenizer/tokenizer.json").symlink_to("/etc/passwd")


def _endless_number(folder: Path) -> None:
    raw = (folder / "servable.json").read_text()
    (folder / "servable.json").write_text(raw.replace('"created_s": ', '"created_s": Infinity, "x": '))


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (_remove_weights, "base/model.safetensors cannot be read: No such file"),
        (_cut_weights, "has 100 bytes; tensor"),
        (_grow_config, "config.json has .* bytes instead of"),
        (_drop_config, "lists no config.json"),
        (_lose_manifest, "must be imported first"),
        (_break_manifest, "servable.json is not JSON"),
        (_link_out, "tokenizer.json is not a file of the servable"),
        (_endless_number, "created_s is inf, not a count"),
    ],
)
def test_a_damaged_servable_is_listed_with_its_reason_beside_the_good_one(
    catalog: DiskCatalog, root: Path, damage, words: str
):
    damage(copy_servable(root, "bad"))
    catalog.refresh()

    assert list(catalog.manifests()) == ["org/tiny"]
    with pytest.raises(ServableCorrupt, match=words):
        catalog.get("bad")


def test_damage_after_the_listing_is_noticed_by_the_next_look(catalog: DiskCatalog, root: Path):
    _cut_weights(root / "org---tiny")
    catalog.refresh()

    assert list(catalog.broken()) == ["org/tiny"]


def test_a_manifest_of_another_model_is_not_served_under_this_name(catalog: DiskCatalog, root: Path):
    shutil.copytree(root / "org---tiny", root / "impostor")
    catalog.refresh()

    assert "is of model 'org/tiny'" in catalog.broken()["impostor"]


def test_a_folder_whose_name_is_no_model_id_is_listed_by_its_name(catalog: DiskCatalog, root: Path):
    (root / "what is this?").mkdir()
    (root / "a-file.txt").write_text("")
    (root / ".import-xyz").mkdir()
    catalog.refresh()

    assert list(catalog.broken()) == ["what is this?"]


def test_an_unchanged_manifest_is_not_parsed_again(catalog: DiskCatalog):
    before = catalog.get("org/tiny")
    catalog.refresh()

    assert catalog.get("org/tiny") is before


def test_a_root_that_is_no_folder_is_listed_as_the_reason(tmp_path: Path):
    (tmp_path / "file").write_text("")
    catalog = DiskCatalog(tmp_path / "file")
    catalog.refresh()

    assert list(catalog.broken().values()) == ["cannot be listed: Not a directory"]


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def _paths(document: object, path: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    """Every place in a JSON document."""
    inner = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    return [path, *(found for key, part in inner for found in _paths(part, (*path, key)))]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(draw=st.data(), replacement=_JSON)
def test_whatever_a_manifest_says_the_list_survives(catalog: DiskCatalog, root: Path, draw, replacement):
    path = root / "org---tiny/servable.json"
    original = path.read_bytes()
    document = json.loads(original)
    place = draw.draw(st.sampled_from(_paths(document)[1:]))
    holder = document
    for key in place[:-1]:
        holder = holder[key]
    holder[place[-1]] = replacement
    try:
        path.write_text(json.dumps(document))
        catalog.refresh()
        assert len(catalog.manifests()) + len(catalog.broken()) == 1
    finally:
        path.write_bytes(original)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut=st.integers(0, 5000), noise=st.binary(max_size=8), file=st.sampled_from(["servable.json", "config.json"]))
def test_however_a_file_is_cut_and_overwritten_the_list_survives(
    catalog: DiskCatalog, root: Path, cut: int, noise: bytes, file: str
):
    path = root / "org---tiny" / file
    original = path.read_bytes()
    try:
        path.write_bytes(original[:cut] + noise)
        catalog.refresh()
        assert len(catalog.manifests()) + len(catalog.broken()) == 1
    finally:
        path.write_bytes(original)
