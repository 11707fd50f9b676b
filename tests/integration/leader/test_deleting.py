"""Fellows that a person deletes: what they held is brought to others, whether they are there or lost."""

from silentswarm.leader.v1 import fleet_pb2, resilience_pb2, resilience_pb2_grpc

from tests.integration.leader.rig import running_leader, text_of, until
from tests.integration.leader.scripted_fellow import ScriptedFellow, declare, joined
from tests.integration.leader.test_healing import BROKEN


def named(name: str, gigabytes: int = 4) -> ScriptedFellow:
    return ScriptedFellow(name, gigabytes * 10**9, declare())


async def delete(rig, name: str) -> None:
    await rig.fleet.DeleteFellow(fleet_pb2.DeleteFellowRequest(fellow_id=name))


async def incidents_of(rig):
    stub = resilience_pb2_grpc.ResilienceStub(rig.channel)
    return (await stub.ListIncidents(resilience_pb2.ListIncidentsRequest())).incidents


async def test_a_lost_fellow_that_is_deleted_while_its_ring_waits_for_somebody_does_not_end_the_model(tmp_path):
    async with (
        running_leader(tmp_path, heal_wait_s=5.0) as rig,
        joined(rig.address, named("attic"), named("kitchen", 3)) as (attic, kitchen),
    ):
        before = await rig.load_ready(num_stages=2)
        await kitchen.leave()
        attic.report(BROKEN, "connection reset", peer_stage=1)
        await rig.until_state("RECOVERING")

        await delete(rig, "kitchen")
        async with joined(rig.address, named("shed", 2)) as (shed,):
            await until(lambda: bool(shed.held), "its stage is loaded by who came")
            after = await rig.until_state("READY")

            assert after.placement_id == before.placement_id
            assert [stage.fellow_name for stage in after.stages] == ["attic", "shed"]
            assert text_of([event async for event in rig.generate()]) == "Hi there"


async def test_a_fellow_that_is_deleted_while_it_serves_is_replaced_by_a_standby(tmp_path):
    fellows = (named("attic"), named("kitchen", 3), named("shed", 2))
    async with running_leader(tmp_path) as rig, joined(rig.address, *fellows) as (_, kitchen, shed):
        before = await rig.load_ready(num_stages=2)
        assert [stage.fellow_name for stage in before.stages] == ["attic", "kitchen"]

        await delete(rig, "kitchen")
        await until(lambda: bool(shed.held), "its stage is loaded elsewhere")
        after = await rig.until_state("READY")

        assert (after.placement_id, [stage.fellow_name for stage in after.stages]) == (
            before.placement_id,
            ["attic", "shed"],
        )
        assert kitchen.held == {} and kitchen.kinds().count("load") == 1
        (incident,) = await incidents_of(rig)
        assert [(one.lost_fellow, one.replacement) for one in incident.stages] == [("kitchen", "shed")]


async def test_a_model_whose_deleted_fellow_nobody_can_replace_says_so_by_its_name(tmp_path):
    few = {"heal_wait_s": 0.5}
    small = ScriptedFellow("shed", 10**6, declare())
    async with running_leader(tmp_path, **few) as rig, joined(rig.address, named("kitchen"), small) as (kitchen, _):
        await rig.load_ready(num_stages=1)

        await delete(rig, "kitchen")
        failed = await rig.until_state("FAILED")

        assert "kitchen" in failed.reason and kitchen.registered.fellow_id not in failed.reason
        assert "swarm model-load tiny" in failed.reason
