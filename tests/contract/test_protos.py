"""The contracts: generated code is of these protos, every element is commented, nothing that is out there breaks."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.contract.proto_image import (
    PROTOS,
    ROOT,
    build_image,
    commit_before,
    protos_of_commit,
    run_buf,
)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The working tree's protos, compiled once."""
    return build_image(PROTOS, tmp_path_factory.mktemp("image") / "now.binpb")


def test_the_committed_code_is_generated_from_these_protos_byte_for_byte():
    command = [sys.executable, ROOT / "scripts" / "generate_protos.py", "--check"]
    checked = subprocess.run(command, capture_output=True, text=True, timeout=120)

    assert checked.returncode == 0, checked.stderr


def test_every_element_is_commented_and_named_by_the_rules(image: Path):
    code, words = run_buf("lint", image)

    assert code == 0, words


def test_a_missing_comment_is_noticed(tmp_path: Path):
    proto = tmp_path / "silentswarm" / "fellow" / "v1" / "bare.proto"
    proto.parent.mkdir(parents=True)
    proto.write_text(
        'syntax = "proto3";\npackage silentswarm.fellow.v1;\n// Said.\nmessage Bare {\n  uint32 unsaid = 1;\n}\n'
    )

    code, words = run_buf("lint", build_image(tmp_path, tmp_path / "bare.binpb"))

    assert code != 0
    assert '"unsaid" should have a non-empty comment' in words


def test_nothing_breaks_against_the_commit_before(image: Path, tmp_path: Path):
    commit = commit_before()
    before = protos_of_commit(commit, tmp_path)
    if before is None:
        pytest.skip(f"{commit} has no protos here (a first commit, a shallow clone, or no git)")

    code, words = run_buf("breaking", image, "--against", build_image(before, tmp_path / "before.binpb"))

    assert code == 0, f"breaks {commit}:\n{words}"


def test_a_renumbered_field_is_noticed(image: Path, tmp_path: Path):
    protos = _copy_of_protos(tmp_path)
    ring = protos / "silentswarm" / "ring" / "v1" / "ring.proto"
    text = ring.read_text()
    assert "uint32 pos = 2;" in text
    ring.write_text(text.replace("uint32 pos = 2;", "uint32 pos = 7;"))

    code, words = run_buf("breaking", build_image(protos, tmp_path / "after.binpb"), "--against", image)

    assert code != 0
    assert '"2" with name "pos" on message "Frame" was deleted' in words


def _copy_of_protos(folder: Path) -> Path:
    """protos/ somewhere it may be changed."""
    copy = folder / "protos"
    for proto in PROTOS.rglob("*.proto"):
        target = copy / proto.relative_to(PROTOS)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(proto.read_bytes())
    return copy
