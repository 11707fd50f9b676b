"""Ways between stages: over an overlay network alone, and from the relay back to direct links."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from silentswarm.core.v1 import capabilities_pb2, stage_pb2
from silentswarm.fellow.v1 import fellow_link_pb2
from silentswarm.leader.v1 import serving_pb2

from tests.integration.leader.rig import MODEL, WAIT_S, Rig, running_leader, until
from tests.integration.leader.scripted_fellow import ScriptedFellow, declare, joined

DIRECT, RELAY = stage_pb2.ROUTE_DIRECT, stage_pb2.ROUTE_RELAY
MESH = stage_pb2.TRANSPORT_MESH
READY = serving_pb2.PLACEMENT_STATE_READY


def pair() -> tuple[ScriptedFellow, ScriptedFellow]:
    """Two fellows; the roomier one gets the first stage."""
    return ScriptedFellow("attic", 3 * 10**9), ScriptedFellow("kitchen", 2 * 10**9)


async def test_a_mesh_is_wired_over_its_addresses(tmp_path):
    attic, kitchen = pair()
    attic.ring_host, kitchen.ring_host = "100.64.0.1", "10.8.0.2"
    async with running_leader(tmp_path, mesh_networks="10.8.0.0/24") as rig, joined(rig.address, attic, kitchen):
        ready = await rig.load_ready(num_stages=2, transport=MESH)

        assert ready.state == READY, ready.reason
        assert ready.transport == MESH
        assert list(attic.wires()[0].next_addresses) == ["10.8.0.2:4001"]
        assert [stage.route for stage in ready.stages] == [DIRECT, DIRECT]


async def test_a_mesh_without_an_overlay_address_fails_with_the_fellow_and_what_to_set(tmp_path):
    attic, kitchen = pair()
    attic.ring_host, kitchen.ring_host = "100.64.0.1", "192.168.1.7"
    async with running_leader(tmp_path) as rig, joined(rig.address, attic, kitchen):
        failed = await rig.load_ready(num_stages=2, transport=MESH)

        assert failed.state == serving_pb2.PLACEMENT_STATE_FAILED
        assert "fellow kitchen has no address in an overlay network" in failed.reason
        assert "it listens at 192.168.1.7:4001" in failed.reason
        assert "SWARM_RING_BIND_HOST=mesh" in failed.reason and "SWARM_MESH_NETWORKS" in failed.reason
        assert attic.wires() == []


def asked(fellow: ScriptedFellow) -> list[list[str]]:
    """The addresses of each CHECK for ways it was sent."""
    checks = [signal.check for signal in fellow.signals if signal.WhichOneof("kind") == "check"]
    return [list(check.addresses) for check in checks if not check.placement_id]


def checking(**more: Any) -> capabilities_pb2.Capabilities:
    return declare(check=capabilities_pb2.Check(), **more)


@asynccontextmanager
async def relayed_ring(tmp_path, capabilities: Any, **config: Any) -> AsyncIterator[tuple[Rig, ScriptedFellow]]:
    """A ring whose first link fell back to the relay; the fellow that dials it."""
    attic, kitchen = pair()
    attic.capabilities = kitchen.capabilities = capabilities
    attic.reaches_directly = False
    settings = {"route_retry_s": 0.2, **config}
    async with running_leader(tmp_path, **settings) as rig, joined(rig.address, attic, kitchen):
        ready = await rig.load_ready(num_stages=2)
        assert [stage.route for stage in ready.stages] == [RELAY, DIRECT]
        yield rig, attic


async def until_routes(rig: Rig, *routes: int) -> serving_pb2.ModelStatus:
    async with asyncio.timeout(WAIT_S):
        while True:
            status = await rig.get()
            if [stage.route for stage in status.stages] == list(routes) and status.state == READY:
                return status
            await asyncio.sleep(0.02)


async def test_a_relayed_link_becomes_direct_again_once_its_fellow_reaches_the_next_stage(tmp_path):
    async with relayed_ring(tmp_path, checking()) as (rig, attic):
        await until(lambda: bool(asked(attic)), "it is asked whom it reaches")
        before = await rig.get()
        attic.reaches_directly = True
        attic.connects_to = {"10.0.0.1:4001"}
        after = await until_routes(rig, DIRECT, DIRECT)

        assert asked(attic)[0] == ["10.0.0.1:4001"]
        assert [stage.route for stage in before.stages] == [RELAY, DIRECT]
        assert after.epoch > before.epoch and after.placement_id == before.placement_id


async def test_an_address_that_takes_connections_and_no_links_breaks_the_ring_ever_less_often(tmp_path):
    """A captive portal answers everybody: each try costs two epochs, and the wait doubles."""
    async with relayed_ring(tmp_path, checking()) as (rig, attic):
        attic.connects_to = {"10.0.0.1:4001"}
        await until(lambda: len(asked(attic)) >= 3, "it is tried three times")
        turns = rig.leader.routes_back._turns
        waits_s = [turn.wait_s for turn in turns.values()]

        assert waits_s and waits_s[0] >= 0.8
        assert (await until_routes(rig, RELAY, DIRECT)).state == READY


async def test_a_running_reply_is_not_interrupted_for_a_better_way(tmp_path):
    async with relayed_ring(tmp_path, checking()) as (rig, attic):
        attic.replies_with = None
        attic.reaches_directly, attic.connects_to = True, {"10.0.0.1:4001"}
        reply = rig.generate(request_id="long")
        await until(lambda: bool(attic.requests), "the reply runs")
        seen = len(asked(attic))
        await asyncio.sleep(1.0)
        epoch = (await rig.get()).epoch
        while_running = len(asked(attic))
        reply.cancel()
        after = await until_routes(rig, DIRECT, DIRECT)

        assert while_running <= seen + 1  # one may have been on its way
        assert after.epoch > epoch


async def test_fellows_that_cannot_be_asked_and_leaders_that_shall_not_leave_the_ring_alone(tmp_path):
    for capabilities, config in ((declare(), {}), (checking(), {"route_retry_s": 0.0})):
        async with relayed_ring(tmp_path / str(bool(config)), capabilities, **config) as (rig, attic):
            attic.reaches_directly, attic.connects_to = True, {"10.0.0.1:4001"}
            await asyncio.sleep(0.8)

            assert asked(attic) == []
            assert [stage.route for stage in (await rig.get()).stages] == [RELAY, DIRECT]


async def test_a_direct_link_that_breaks_for_good_is_relayed_from_the_next_epoch_on_and_direct_once_it_can_be(tmp_path):
    attic, kitchen = pair()
    attic.capabilities = kitchen.capabilities = checking()
    async with running_leader(tmp_path, route_retry_s=0.3) as rig, joined(rig.address, attic, kitchen):
        first = await rig.load_ready(num_stages=2)
        attic.reaches_directly = False
        attic.report(fellow_link_pb2.STAGE_EVENT_KIND_LINK_BROKEN, "connection reset")
        relayed = await until_routes(rig, RELAY, DIRECT)
        await until(lambda: not rig.leader.board.get(MODEL).is_healing, "it is over")
        attic.reaches_directly, attic.connects_to = True, {"10.0.0.1:4001"}
        direct = await until_routes(rig, DIRECT, DIRECT)

        assert [stage.route for stage in first.stages] == [DIRECT, DIRECT]
        assert relayed.epoch == first.epoch + 2  # one epoch to see that it is not reached any more
        assert relayed.epoch < direct.epoch
        assert first.placement_id == relayed.placement_id == direct.placement_id
        assert attic.kinds().count("load") == 1  # its weights stayed where they were
