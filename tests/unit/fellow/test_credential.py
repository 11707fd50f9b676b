"""The secret of a machine: kept for its own user alone, presented once there is one, never put into a header broken."""

import stat
from pathlib import Path

import pytest
from swarm_core.errors import BadRequest
from swarm_fellow.config import read_config
from swarm_fellow.host.credential import NAME, NodeCredential

LEADER = {"SWARM_LEADER": "127.0.0.1:50551"}


def test_a_machine_that_never_joined_presents_nothing(tmp_path: Path):
    assert NodeCredential(tmp_path).metadata == ()


def test_a_credential_outlives_the_process_in_a_private_file(tmp_path: Path):
    NodeCredential(tmp_path).keep("sk-node-1")

    assert NodeCredential(tmp_path).metadata == (("authorization", "Bearer sk-node-1"),)
    assert stat.S_IMODE((tmp_path / NAME).stat().st_mode) == 0o600


def test_no_new_credential_keeps_the_one_there_is(tmp_path: Path):
    credential = NodeCredential(tmp_path)
    credential.keep("sk-node-1")
    credential.keep("")

    assert credential.metadata == NodeCredential(tmp_path).metadata == (("authorization", "Bearer sk-node-1"),)


def test_a_file_that_others_could_read_is_made_private(tmp_path: Path):
    (tmp_path / NAME).write_text("sk-node-1\n")
    (tmp_path / NAME).chmod(0o644)

    assert NodeCredential(tmp_path).metadata
    assert stat.S_IMODE((tmp_path / NAME).stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "damaged", [b"", b"\0\0\0\0", b"sk-node-\xff\xfe", b"sk-node-1\nsecond line", "caf\u00e9".encode()]
)
def test_a_damaged_file_is_no_credential(tmp_path: Path, damaged: bytes):
    (tmp_path / NAME).write_bytes(damaged)

    assert NodeCredential(tmp_path).metadata == ()


def test_a_join_token_may_lie_in_a_file(tmp_path: Path):
    file = tmp_path / "join-token"
    file.write_text("swarm-join-1\n")

    assert read_config(LEADER | {"SWARM_JOIN_TOKEN_FILE": str(file)}).join_token == "swarm-join-1"
    assert read_config(LEADER | {"SWARM_JOIN_TOKEN_FILE": str(file), "SWARM_JOIN_TOKEN": "x"}).join_token == "x"


@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe"])
def test_a_join_token_file_that_holds_none_is_named(tmp_path: Path, content: bytes | None):
    file = tmp_path / "join-token"
    if content is not None:
        file.write_bytes(content)

    with pytest.raises(BadRequest, match="SWARM_JOIN_TOKEN_FILE"):
        read_config(LEADER | {"SWARM_JOIN_TOKEN_FILE": str(file)})
