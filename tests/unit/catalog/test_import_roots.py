"""Who may name which path of the leader's disk."""

from pathlib import Path

import pytest
from swarm_core.errors import PermissionDenied
from swarm_leader.catalog.import_roots import ImportRoots, is_local_call, read_import_roots
from swarm_rpc.forwarded import FORWARDED


@pytest.mark.parametrize(
    ("peer", "is_local"),
    [
        ("unix:", True),
        ("unix:/run/leader.sock", True),
        ("ipv4:127.0.0.1:50000", True),
        ("ipv4:127.8.9.1:50000", True),
        ("ipv6:[::1]:50000", True),
        ("ipv6:%5B::1%5D:50000", True),
        ("ipv6:[::ffff:127.0.0.1]:50000", True),
        ("ipv4:10.0.0.1:50000", False),
        ("ipv4:128.0.0.1:127", False),
        ("ipv6:[fe80::1]:1", False),
        ("ipv6:[::ffff:10.0.0.1]:50000", False),
        ("127.0.0.1:50000", False),
        ("", False),
    ],
)
def test_a_caller_on_the_machine_is_known_by_its_connection(peer: str, is_local: bool):
    assert is_local_call(peer, ()) is is_local
    assert is_local_call(peer, None) is is_local
    assert is_local_call(peer, [("authorization", "Bearer x"), (FORWARDED, "1")]) is False


def test_without_roots_the_machine_itself_may_name_every_path_and_others_none():
    ImportRoots().check(Path("/etc"), is_local=True)
    with pytest.raises(PermissionDenied, match="SWARM_IMPORT_ROOTS"):
        ImportRoots().check(Path("/etc"), is_local=False)

    assert read_import_roots(" : ") == read_import_roots("") == ImportRoots()


@pytest.mark.parametrize("is_local", [True, False])
def test_with_roots_everyone_stays_below_them_also_by_way_of_links(tmp_path: Path, is_local: bool):
    inside, outside = tmp_path / "models", tmp_path / "models-of-others"
    (inside / "a").mkdir(parents=True)
    outside.mkdir()
    (inside / "out").symlink_to(outside)
    (inside / "circle").symlink_to("circle")
    (tmp_path / "in").symlink_to(inside)
    roots = read_import_roots(f"{tmp_path / 'nowhere'}:{inside}")

    for path in (inside, inside / "a", inside / "missing", tmp_path / "in/a", inside / "a/../a"):
        roots.check(path, is_local)
    for path in (
        outside,
        inside / "out",
        inside / "..",
        Path("/etc"),
        Path("models/a"),
        inside / "circle/x",
        tmp_path / "no",
    ):
        with pytest.raises(PermissionDenied, match="the leader imports only what lies below"):
            roots.check(path, is_local)
