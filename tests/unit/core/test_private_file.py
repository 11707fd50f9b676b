"""Files that only their owner may read."""

import stat
from pathlib import Path

import pytest
from swarm_core.errors import DiskFull
from swarm_core.private_file import write_private


def test_a_secret_is_for_its_owner_alone_also_where_an_older_one_was_not(tmp_path: Path):
    file = tmp_path / "secret"
    file.write_text("old")
    file.chmod(0o644)
    write_private(file, "new\n")

    assert file.read_text() == "new\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["secret"]


def test_a_link_that_lies_in_the_way_is_not_written_through(tmp_path: Path):
    others = tmp_path / "others"
    others.write_text("theirs")
    (tmp_path / "secret.new").symlink_to(others)
    write_private(tmp_path / "secret", "ours")

    assert (others.read_text(), (tmp_path / "secret").read_text()) == ("theirs", "ours")


def test_where_nothing_can_be_written_the_file_is_named(tmp_path: Path):
    file = tmp_path / "missing" / "secret"
    with pytest.raises(DiskFull, match=str(file)):
        write_private(file, "ours")
