"""How a fellow knows its leader, over real sockets: pins, kept roots, and what it never does in plaintext."""

import grpc
import pytest
from swarm_core.clock import ManualClock, SystemClock
from swarm_core.errors import BadRequest, PermissionDenied
from swarm_fellow.host.certificates import NodeCertificates
from swarm_fellow.host.leader_door import LeaderDoor
from swarm_leader.trust.identity import LeaderIdentity
from swarm_rpc.tls import LEADER_NAME, server_credentials
from swarm_stage.ring.certificates import open_certificates

from tests.integration.rpc.tls_peers import RootsServicer, ask, make_authority, serving


@pytest.fixture
def authority(tmp_path):
    return make_authority(tmp_path / "authority")


@pytest.fixture
def credentials(authority):
    identity = authority.issue_identity([LEADER_NAME])
    return server_credentials(lambda: identity)


def door_to(address: str, tmp_path, join_token: str = "", leader_ca: str = "", allow_insecure: bool = False):
    state = tmp_path / "state"
    state.mkdir(exist_ok=True)
    return LeaderDoor(address, leader_ca, join_token, state, allow_insecure)


async def test_the_pin_in_a_join_token_is_enough_and_the_root_is_kept(authority, credentials, tmp_path):
    async with serving(RootsServicer(authority.roots), credentials) as address:
        first = door_to(address, tmp_path, f"swarm-join-abc.{authority.pin}")
        async with await first.open() as channel:
            await ask(channel)
        later = door_to(address, tmp_path)  # restarted without its join token
        async with await later.open() as channel:
            assert (await ask(channel)).roots == authority.roots

    assert later.trust is not None
    assert (tmp_path / "state" / "tls" / "leader.pem").read_bytes() == authority.roots


async def test_a_leader_known_before_is_never_talked_to_in_plaintext(authority, credentials, tmp_path):
    """Whoever takes the leader's place without its certificate gets nothing, and the fellow says why."""
    async with serving(RootsServicer(authority.roots), credentials) as address:
        await (await door_to(address, tmp_path, f"x.{authority.pin}").open()).close()
    plaintext = RootsServicer(authority.roots)
    async with serving(plaintext) as address:
        door = door_to(address, tmp_path)
        async with await door.open() as channel:
            with pytest.raises(grpc.RpcError):
                await ask(channel, 2)
        told = await door.explain()

    assert "does not speak TLS" in told and "leader.pem" in told
    assert plaintext.metadata == []


async def test_the_pin_of_another_swarm_replaces_what_was_kept(authority, credentials, tmp_path):
    other = make_authority(tmp_path / "other")
    identity = other.issue_identity([LEADER_NAME])
    async with serving(RootsServicer(authority.roots), credentials) as address:
        await (await door_to(address, tmp_path, f"x.{authority.pin}").open()).close()
    async with serving(RootsServicer(other.roots), server_credentials(lambda: identity)) as address:
        door = door_to(address, tmp_path, f"x.{other.pin}")
        async with await door.open() as channel:
            assert (await ask(channel)).sha256 == other.pin


async def test_a_leader_that_is_another_is_refused_every_time_and_nothing_is_kept(authority, credentials, tmp_path):
    async with serving(RootsServicer(authority.roots), credentials) as address:
        door = door_to(address, tmp_path, "swarm-join-abc." + "cd" * 32)
        for _ in range(2):
            with pytest.raises(PermissionDenied, match=authority.pin):
                await door.open()

    assert not (tmp_path / "state" / "tls" / "leader.pem").exists()


def test_a_leader_on_another_machine_is_not_dialled_in_plaintext_unless_that_is_said(tmp_path):
    with pytest.raises(BadRequest, match="SWARM_LEADER_CA"):
        door_to("10.0.0.1:50551", tmp_path, "swarm-join-without-a-pin")

    assert door_to("10.0.0.1:50551", tmp_path, allow_insecure=True).trust is None
    assert door_to("127.0.0.1:50551", tmp_path).trust is None


async def test_new_roots_that_the_leader_tells_over_a_trusted_channel_are_kept(authority, credentials, tmp_path):
    """A leader that changes its authority tells both roots for a while; machines follow without a hand."""
    both = authority.roots + make_authority(tmp_path / "next").roots
    async with serving(RootsServicer(authority.roots), credentials) as address:
        door = door_to(address, tmp_path, f"x.{authority.pin}")
        async with await door.open():
            door.take_roots(both)
        async with await door_to(address, tmp_path, f"x.{authority.pin}").open() as channel:
            await ask(channel)
        door.take_roots(b"no roots at all")

    assert (tmp_path / "state" / "tls" / "leader.pem").read_bytes() == both


def test_without_tls_to_the_leader_relays_are_reached_without(tmp_path):
    plain = door_to("127.0.0.1:1", tmp_path)

    assert plain.relay_trust("127.0.0.1:1", b"") is None and plain.relay_trust("relay.example:1", b"") is None


async def test_a_relay_of_its_own_is_trusted_by_host_and_any_root_of_ours(authority, credentials, tmp_path):
    async with serving(RootsServicer(authority.roots), credentials) as address:
        door = door_to(address, tmp_path, f"x.{authority.pin}")
        await (await door.open()).close()
        own, other = door.relay_trust(address, authority.roots), door.relay_trust("relay.example:1", authority.roots)

    assert own is not None and own.name == LEADER_NAME
    assert other is not None and other.name == "" and authority.roots in other.roots


def test_a_machine_keeps_its_key_and_gets_a_certificate_for_it(tmp_path):
    clock = SystemClock()
    identity = LeaderIdentity(tmp_path / "authority", clock, is_on=True)
    (tmp_path / "authority").mkdir()
    mine = NodeCertificates(tmp_path, clock)
    before = mine.tls_dir
    certified = identity.certify_fellow("f1", mine.request())
    mine.keep(certified.certificate, certified.roots)
    key = (tmp_path / "tls" / "node.key").read_bytes()
    again = NodeCertificates(tmp_path, clock)
    renewed = identity.certify_fellow("f1", again.request())
    again.keep(renewed.certificate, renewed.roots)

    assert before == "" and mine.tls_dir == str(tmp_path / "tls")
    assert (tmp_path / "tls" / "node.key").read_bytes() == key
    assert (tmp_path / "tls").stat().st_mode & 0o077 == 0
    assert open_certificates(mine.tls_dir) is not None
    assert mine.renew_after_s is not None and 200 * 86_400 < mine.renew_after_s < 250 * 86_400


def test_a_registration_without_a_certificate_means_plaintext_links(tmp_path):
    mine = NodeCertificates(tmp_path, ManualClock())
    mine.request()
    mine.keep(b"", b"")

    assert mine.tls_dir == "" and mine.roots == b"" and mine.renew_after_s is None


def test_a_key_cut_short_by_a_full_disk_is_made_anew(tmp_path):
    mine = NodeCertificates(tmp_path, ManualClock())
    mine.request()
    (tmp_path / "tls" / "node.key").write_bytes(b"-----BEGIN")

    assert mine.request()
    assert b"PRIVATE KEY" in (tmp_path / "tls" / "node.key").read_bytes()
