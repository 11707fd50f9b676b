"""Ways between stages: over an overlay network alone, and from the relay back to direct links."""

from silentswarm.core.v1 import stage_pb2
from silentswarm.leader.v1 import serving_pb2

from tests.integration.leader.rig import running_leader
from tests.integration.leader.scripted_fellow import ScriptedFellow, joined

DIRECT, RELAY = stage_pb2.ROUTE_DIRECT, stage_pb2.ROUTE_RELAY
MESH = stage_pb2.TRANSPORT_MESH


def pair() -> tuple[ScriptedFellow, ScriptedFellow]:
    """Two fellows; the roomier one gets the first stage."""
    return ScriptedFellow("attic", 3 * 10**9), ScriptedFellow("kitchen", 2 * 10**9)


async def test_a_mesh_is_wired_over_its_addresses(tmp_path):
    attic, kitchen = pair()
    attic.ring_host, kitchen.ring_host = "100.64.0.1", "10.8.0.2"
    async with running_leader(tmp_path, mesh_networks="10.8.0.0/24") as rig, joined(rig.address, attic, kitchen):
        ready = await rig.load_ready(num_stages=2, transport=MESH)

        assert ready.state == serving_pb2.PLACEMENT_STATE_READY, ready.reason
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
