"""Links between stages, over real sockets: who may make one, and what a stranger at the port can do (nothing)."""

import asyncio
import dataclasses
import socket

import grpc
import pytest
from silentswarm.ring.v1 import ring_pb2
from swarm_core.errors import LinkBroken
from swarm_rpc.tls import Trust, fellow_name
from swarm_stage.ring.certificates import open_certificates

from tests.integration.rpc.tls_peers import make_authority
from tests.integration.trust.linked_stages import (
    SECRETS,
    hello,
    join_all,
    keys_of,
    linked,
    order,
    say,
    write_certificates,
)


@pytest.fixture
def authority(tmp_path):
    return make_authority(tmp_path / "authority")


@pytest.fixture
def folders(authority, tmp_path):
    """Certificates of three machines."""
    return [write_certificates(authority, tmp_path / f"f{index}", f"f{index}") for index in range(3)]


def batch(epoch: int, session: int = 1) -> ring_pb2.FrameBatch:
    return ring_pb2.FrameBatch(epoch=epoch, frames=[ring_pb2.Frame(session=session)])


@pytest.mark.parametrize("has_tls", [True, False])
async def test_stages_that_prove_themselves_are_linked_and_frames_go_round(folders, has_tls):
    async with linked(folders if has_tls else ["", "", ""]) as ring:
        await join_all(ring, 1, has_tls)
        for index, stage in enumerate(ring):
            stage.wiring.send_from_engine(batch(1, session=index))
        arrived = [(await stage.arrives(1))[0].frames[0].session for stage in ring]

        assert arrived == [2, 0, 1]
        assert [stage.wiring.links_refused for stage in ring] == [0, 0, 0]


async def test_an_old_ring_without_keys_is_linked_as_before():
    async with linked(["", ""]) as ring:
        await asyncio.gather(*(stage.wiring.join(order(ring, i, 1, None)) for i, stage in enumerate(ring)))
        ring[0].wiring.send_from_engine(batch(1))

        assert len(await ring[1].arrives(1)) == 1


@pytest.mark.parametrize(
    ("secret", "code"),
    [
        (None, grpc.StatusCode.UNAUTHENTICATED),
        (bytes(32), grpc.StatusCode.PERMISSION_DENIED),
        (SECRETS[1], grpc.StatusCode.PERMISSION_DENIED),  # of the stage's own link to the next one
    ],
    ids=["none", "a wrong one", "another link's"],
)
async def test_a_stranger_is_refused_and_counted_and_the_running_ring_does_not_notice(secret, code):
    async with linked(["", ""]) as ring:
        await join_all(ring, 3, has_tls=False)
        with pytest.raises(grpc.RpcError) as refused:
            await say(ring[1].address, hello(3, secret))
        ring[0].wiring.send_from_engine(batch(3))

        assert refused.value.code() is code
        assert ring[1].wiring.links_refused == 1
        assert len(await ring[1].arrives(1)) == 1 and ring[1].faults == []


async def test_a_stranger_who_comes_first_does_not_take_the_place_of_the_previous_stage():
    async with linked(["", ""]) as ring:
        joining = asyncio.ensure_future(ring[1].wiring.join(order(ring, 1, 1, keys_of(1, 2, False), timeout_s=10)))
        for _ in range(20):
            with pytest.raises(grpc.RpcError):
                await say(ring[1].address, hello(1, b"guessed"))
        await ring[0].wiring.join(order(ring, 0, 1, keys_of(0, 2, False)))
        await joining
        ring[0].wiring.send_from_engine(batch(1))

        assert len(await ring[1].arrives(1)) == 1


async def test_a_proof_of_an_older_epoch_opens_nothing():
    """Each epoch has secrets of its own; here even with the same secret the epoch is part of the proof."""
    async with linked(["", ""]) as ring:
        await join_all(ring, 4, has_tls=False)
        replayed = hello(3, SECRETS[0])
        with pytest.raises(grpc.RpcError) as stale:
            await say(ring[1].address, replayed)
        replayed.epoch = 4
        with pytest.raises(grpc.RpcError) as forged:
            await say(ring[1].address, replayed)

        assert stale.value.code() is grpc.StatusCode.ABORTED
        assert forged.value.code() is grpc.StatusCode.PERMISSION_DENIED
        assert ring[1].faults == []


async def test_the_true_hello_said_twice_is_taken_once():
    async with linked(["", ""]) as ring:
        await join_all(ring, 1, has_tls=False)
        with pytest.raises(grpc.RpcError) as again:
            await say(ring[1].address, hello(1, SECRETS[0]))
        ring[0].wiring.send_from_engine(batch(1))

        assert again.value.code() is grpc.StatusCode.ABORTED
        assert len(await ring[1].arrives(1)) == 1


async def test_a_stage_that_cannot_prove_itself_is_not_believed_by_the_one_that_dials():
    """Whoever listens at the next stage's address must hold the secret too, or hidden states would go to it."""
    async with linked(["", ""]) as ring:
        wrong = dataclasses.replace(keys_of(1, 2, False), previous_secret=bytes(32))
        both = [
            ring[0].wiring.join(order(ring, 0, 1, keys_of(0, 2, False), timeout_s=5)),
            ring[1].wiring.join(order(ring, 1, 1, wrong, timeout_s=5)),
        ]
        outcomes = await asyncio.gather(*both, return_exceptions=True)

        assert isinstance(outcomes[0], LinkBroken) and "not made with this link's secret" in outcomes[0].message
        assert ring[1].arrived == []


async def test_another_machine_of_the_swarm_does_not_pass_for_the_previous_stage(authority, folders, tmp_path):
    """It has a certificate of the same roots, and even the secret; the name is another's."""
    other = write_certificates(authority, tmp_path / "f9", "f9")
    async with linked([folders[0], folders[1]]) as ring:
        joining = asyncio.ensure_future(ring[1].wiring.join(order(ring, 1, 1, keys_of(1, 2))))
        async with asyncio.timeout(5):
            while ring[1].wiring.epoch < 1:
                await asyncio.sleep(0.01)
        trust = open_certificates(other).trust(fellow_name("f1"))
        with pytest.raises(grpc.RpcError) as refused:
            await say(ring[1].address, hello(1, SECRETS[0]), trust)
        await ring[0].wiring.join(order(ring, 0, 1, keys_of(0, 2)))
        await joining

        assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
        assert fellow_name("f9") in refused.value.details()
        assert ring[1].wiring.links_refused == 1


async def test_another_machine_at_the_next_stages_address_gets_nothing(folders):
    """Stage 0 expects f1; f2 answers there, with a certificate of the same swarm."""
    async with linked([folders[0], folders[2]]) as ring:
        with pytest.raises(LinkBroken, match=fellow_name("f1").replace(".", r"\.")):
            await ring[0].wiring.join(order(ring, 0, 1, keys_of(0, 2), timeout_s=5))


@pytest.mark.parametrize("shows", ["nothing", "another swarm's", "plaintext"])
async def test_a_port_with_tls_lets_in_nobody_from_outside_the_swarm(authority, folders, tmp_path, shows):
    stranger = make_authority(tmp_path / "stranger")
    write_certificates(stranger, tmp_path / "s", "f0")
    mine = open_certificates(str(tmp_path / "s"))
    trusts = {
        "nothing": Trust(authority.roots, fellow_name("f1")),
        "another swarm's": dataclasses.replace(mine.trust(fellow_name("f1")), roots=authority.roots),
        "plaintext": None,
    }
    async with linked(folders[:2]) as ring:
        await join_all(ring, 1)
        with pytest.raises(grpc.RpcError) as refused:
            await say(ring[1].address, hello(1, SECRETS[0]), trusts[shows])
        ring[0].wiring.send_from_engine(batch(1))

        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        assert len(await ring[1].arrives(1)) == 1 and ring[1].faults == []


async def test_connections_that_say_nothing_neither_hang_nor_fill_the_port(folders):
    async with linked(folders[:2]) as ring:
        await join_all(ring, 1)
        held = [socket.create_connection(("127.0.0.1", ring[1].port)) for _ in range(300)]
        try:
            ring[0].wiring.send_from_engine(batch(1))
            assert len(await ring[1].arrives(1)) == 1
            async with asyncio.timeout(15):  # all are let go, and a new epoch is joined through the same port
                while True:
                    try:
                        await join_all(ring, ring[0].wiring.epoch + 1)
                        break
                    except LinkBroken:
                        await asyncio.sleep(0.2)
        finally:
            for connection in held:
                connection.close()

        epoch = ring[0].wiring.epoch
        ring[0].wiring.send_from_engine(batch(epoch))
        assert (await ring[1].arrives(2))[1].epoch == epoch


async def test_a_stage_loaded_without_a_certificate_says_so_in_an_encrypted_ring(folders):
    async with linked([folders[0], ""]) as ring:
        with pytest.raises(LinkBroken, match="loaded without a certificate"):
            await ring[1].wiring.join(order(ring, 1, 1, keys_of(1, 2), timeout_s=5))
        with pytest.raises(LinkBroken, match="does not speak TLS"):
            await ring[0].wiring.join(order(ring, 0, 1, keys_of(0, 2), timeout_s=5))
