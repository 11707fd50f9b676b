"""Channels and listeners with TLS over real sockets: what is believed, what is refused, and in which words."""

import asyncio
import shutil
import socket

import grpc
import pytest
from swarm_core.errors import BadRequest, PermissionDenied, Unavailable
from swarm_leader.trust.authority import Purpose
from swarm_rpc.channel import dial
from swarm_rpc.leader_trust import learn_roots, pin_of, trust_for, trust_in
from swarm_rpc.server import ConnectionLimits, listen, make_server
from swarm_rpc.tls import LEADER_NAME, FileIdentity, Trust, fellow_name, server_credentials, sha256_of_root
from swarm_rpc.tls_words import explain

from tests.integration.rpc.tls_peers import (
    RootsServicer,
    aged_identity,
    ask,
    make_authority,
    self_signed,
    serving,
)


@pytest.fixture
def authority(tmp_path):
    return make_authority(tmp_path / "authority")


@pytest.fixture
def credentials(authority):
    identity = authority.issue_identity([LEADER_NAME])
    return server_credentials(lambda: identity)


async def why_not(address: str, trust: Trust | None) -> str:
    """A call that fails, and what is said about it."""
    async with dial(address, trust=trust) as channel:
        with pytest.raises(grpc.RpcError) as failed:
            await ask(channel, 3)
    assert failed.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
    return await explain(address, trust)


async def test_a_client_with_the_root_reaches_the_leader_at_any_address(authority, credentials):
    async with serving(RootsServicer(authority.roots), credentials) as address:
        for reached in (address, address.replace("127.0.0.1", "localhost")):
            async with dial(reached, trust=trust_in(authority.roots)) as channel:
                assert (await ask(channel)).sha256 == authority.pin


async def test_a_pin_is_enough_to_find_the_right_root(authority, credentials):
    async with serving(RootsServicer(authority.roots), credentials) as address:
        trust = await trust_for(address, f"sha256:{authority.pin}")

        assert trust == Trust(authority.roots, LEADER_NAME)
        async with dial(address, trust=trust) as channel:
            assert (await ask(channel)).roots == authority.roots


async def test_a_wrong_pin_is_refused_with_both_digests_and_nothing_was_sent(authority, credentials):
    servicer, wanted = RootsServicer(authority.roots), "ab" * 32
    async with serving(servicer, credentials) as address:
        with pytest.raises(PermissionDenied) as refused:
            await learn_roots(address, wanted)

    assert authority.pin in refused.value.message and wanted in refused.value.message
    assert not [key for key, _ in servicer.metadata if key == "authorization"]


async def test_somebody_in_between_who_tells_the_right_root_is_not_reached_by_the_real_channel(authority, tmp_path):
    """GetRoots is public, so anyone can repeat it; only the holder of a leaf under that root gets a secret."""
    other = make_authority(tmp_path / "other").issue_identity([LEADER_NAME])
    async with serving(RootsServicer(authority.roots), server_credentials(lambda: other)) as address:
        trust = await learn_roots(address, authority.pin)
        said = await why_not(address, trust)

    assert "does not lead to a root" in said and authority.pin in said


async def test_a_machines_certificate_does_not_pass_for_the_leaders(authority):
    fellow = authority.issue_identity([fellow_name("f1")])
    async with serving(RootsServicer(authority.roots), server_credentials(lambda: fellow)) as address:
        said = await why_not(address, trust_in(authority.roots))

    assert LEADER_NAME in said and "another name" in said


async def test_a_new_leaf_of_the_same_root_needs_no_new_trust(authority, tmp_path):
    current = [authority.issue_identity([LEADER_NAME])]
    trust = trust_in(authority.roots)
    async with serving(RootsServicer(authority.roots), server_credentials(lambda: current[0])) as address:
        async with dial(address, trust=trust) as channel:
            await ask(channel)
        current[0] = authority.issue_identity([LEADER_NAME])
        async with dial(address, trust=trust) as channel:
            assert (await ask(channel)).sha256 == authority.pin


@pytest.mark.parametrize("clock_days", [-1.0, 1.0])
async def test_a_leader_whose_clock_is_wrong_by_a_day_is_believed(tmp_path, clock_days):
    identity, roots = aged_identity(tmp_path, clock_days)
    async with (
        serving(RootsServicer(roots), server_credentials(lambda: identity)) as address,
        dial(address, trust=trust_in(roots)) as channel,
    ):
        assert (await ask(channel)).roots == roots


async def test_an_expired_certificate_is_told_as_such(tmp_path):
    identity, roots = aged_identity(tmp_path, -400)
    async with serving(RootsServicer(roots), server_credentials(lambda: identity)) as address:
        assert "has expired; the clock here says" in await why_not(address, trust_in(roots))


async def test_a_certificate_of_the_future_is_told_as_such(tmp_path):
    identity, roots = aged_identity(tmp_path, +30)
    async with serving(RootsServicer(roots), server_credentials(lambda: identity)) as address:
        assert "is not valid yet; the clock here says" in await why_not(address, trust_in(roots))


async def test_an_unknown_root_is_told_with_the_trusted_one(authority, credentials, tmp_path):
    stranger = make_authority(tmp_path / "stranger")
    async with serving(RootsServicer(authority.roots), credentials) as address:
        said = await why_not(address, trust_in(stranger.roots))

    assert stranger.pin in said and "SWARM_LEADER_CA" in said


async def test_a_client_without_tls_is_told_that_the_leader_speaks_it(authority, credentials):
    async with serving(RootsServicer(authority.roots), credentials) as address:
        said = await why_not(address, None)

    assert f"{address} speaks TLS" in said and "SWARM_LEADER_CA" in said


async def test_a_client_with_tls_is_told_that_the_leader_speaks_none(authority):
    async with serving(RootsServicer(authority.roots)) as address:
        said = await why_not(address, trust_in(authority.roots))
        with pytest.raises(Unavailable, match="does not speak TLS"):
            await learn_roots(address, authority.pin)

    assert f"{address} does not speak TLS" in said


async def test_nobody_there_is_not_blamed_on_tls(authority):
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{held.getsockname()[1]}"

        assert await explain(address, trust_in(authority.roots)) == ""
        with pytest.raises(Unavailable, match="nothing answers"):
            await learn_roots(address, authority.pin)


async def test_a_peer_that_accepts_and_says_nothing_does_not_hold_a_client_for_ever(authority):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        async with asyncio.timeout(10):
            with pytest.raises(Unavailable):
                await learn_roots(address, authority.pin, timeout_s=1.0)


async def test_own_files_are_checked_by_the_host_that_is_dialled(tmp_path):
    certificate, key = self_signed(tmp_path)
    credentials = server_credentials(FileIdentity(certificate, key))
    async with serving(RootsServicer(certificate.read_bytes()), credentials) as address:
        trust = await trust_for(address, str(certificate))
        assert trust is not None and trust.name == ""
        async with dial(address, trust=trust) as channel:
            await ask(channel)
        elsewhere = address.replace("127.0.0.1", "localhost")

        assert "another name than localhost" in await why_not(elsewhere, trust)


async def test_renewed_files_are_used_without_a_restart_and_broken_ones_are_not(tmp_path):
    certificate, key = self_signed(tmp_path / "one")
    renewed, renewed_key = self_signed(tmp_path / "two")
    source = FileIdentity(certificate, key)
    first = source()
    certificate.write_bytes(b"half a certifi")
    kept = source()
    shutil.copy(renewed, certificate)
    half = source()
    shutil.copy(renewed_key, key)

    assert kept == half == first
    assert source().certificate == renewed.read_bytes()


@pytest.mark.parametrize("wrong", ["missing", "text", "other key"])
def test_files_that_do_not_fit_are_refused_with_the_variable(tmp_path, wrong):
    certificate, key = self_signed(tmp_path / "one")
    if wrong == "missing":
        key.unlink()
    elif wrong == "text":
        certificate.write_text("hello")
    else:
        shutil.copy(self_signed(tmp_path / "two")[1], key)

    with pytest.raises(BadRequest, match="SWARM_TLS_CERT"):
        FileIdentity(certificate, key)


@pytest.mark.parametrize("leader_ca", ["sha256:12", "/nowhere/roots.pem", "sha256:" + "z" * 64])
async def test_a_setting_that_means_nothing_is_refused_by_name(leader_ca):
    with pytest.raises(BadRequest, match="SWARM_LEADER_CA"):
        await trust_for("127.0.0.1:1", leader_ca)


def test_a_pin_is_read_behind_the_last_dot_of_a_join_token():
    pin = "0f" * 32

    assert pin_of(f"swarm-join-abc.{pin}") == pin_of(f"sha256:{pin.upper()}") == pin
    assert pin_of("swarm-join-abc") == pin_of("swarm-join-abc.short") == pin_of("open-sesame") == ""


async def test_a_listener_that_asks_for_certificates_knows_whose_it_is(authority):
    leader = authority.issue_identity([LEADER_NAME])
    fellow = authority.issue_identity([fellow_name("f1")], Purpose(client=True))
    servicer = RootsServicer(authority.roots)
    async with serving(servicer, server_credentials(lambda: leader, authority.roots)) as address:
        async with dial(address, trust=Trust(authority.roots, LEADER_NAME, fellow)) as channel:
            await ask(channel)
        async with dial(address, trust=Trust(authority.roots, LEADER_NAME)) as channel:
            with pytest.raises(grpc.RpcError):
                await ask(channel)

    assert servicer.peer_names == [b"f1.fellow.silentswarm.internal"]


async def test_connections_that_say_nothing_are_closed_and_more_than_allowed_do_not_stay(authority, credentials):
    server = make_server(limits=ConnectionLimits(connections_max=4, idle_s=1, handshake_s=1))
    port = listen(server, "127.0.0.1:0", credentials)
    await server.start()
    held = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
    try:
        for connection in held:
            connection.settimeout(10)
            assert await asyncio.to_thread(connection.recv, 1) == b""
    finally:
        for connection in held:
            connection.close()
        await server.stop(0)


def test_the_digest_of_a_root_is_the_pin(authority):
    assert sha256_of_root(b"# a comment\n" + authority.roots) == authority.pin
