"""Stages held a second time: where they are planned, when they give way, and when they end."""

import asyncio

from silentswarm.fellow.v1 import fellow_link_pb2 as link_pb2
from silentswarm.fellow.v1 import transfer_pb2, transfer_pb2_grpc
from silentswarm.leader.v1 import serving_pb2
from swarm_core.errors import Reason
from swarm_leader.flows.replacing import COVER_LOOK_S
from swarm_rpc.channel import dial

from tests.integration.leader.covering_fellow import HOT, WARM, CoveringFellow
from tests.integration.leader.rig import MODEL, refusal_of, running_leader, until, write_servable
from tests.integration.leader.scripted_fellow import ScriptedFellow, joined
from tests.unit.leader.model_facts import make_manifest

GB = 10**9
RESERVE = {"cover_reserve_mb": 1}


def ring_and_spare(**spare):
    """Two fellows that a ring is put on by name, and a third that is free."""
    return CoveringFellow("attic", 3 * GB), CoveringFellow("kitchen", 2 * GB), CoveringFellow("shed", **spare)


async def load_on_two(rig) -> serving_pb2.ModelStatus:
    """The model over attic and kitchen."""
    return await rig.load_ready(num_stages=2, fellow_ids=["attic", "kitchen"])


async def test_both_stages_of_a_ready_ring_are_held_hot_by_a_free_fellow_and_shown(tmp_path):
    async with running_leader(tmp_path, **RESERVE) as rig, joined(rig.address, *ring_and_spare()) as (_, _, shed):
        ready = await load_on_two(rig)
        await until(lambda: shed.kinds_of() == {0: HOT, 1: HOT}, "both are held")
        covers = [(one.stage_index, one.fellow_name, one.kind) for one in (await rig.get()).covers]
        asked = [signal.cover for signal in shed.signals if signal.WhichOneof("kind") == "cover"]

    assert covers == [(0, "shed", "hot"), (1, "shed", "hot")]
    assert all(one.spec.placement_id == ready.placement_id and one.spec.epoch == 0 for one in asked)
    assert all(one.listen for one in asked) and len(asked) == 2


async def test_what_does_not_fit_in_memory_is_held_warm(tmp_path):
    async with (
        running_leader(tmp_path, cover_reserve_mb=5000) as rig,
        joined(rig.address, *ring_and_spare()) as (_, _, shed),
    ):
        await load_on_two(rig)
        await until(lambda: shed.kinds_of() == {0: WARM, 1: WARM}, "both are held warm")
        shown = [(one.kind, one.weight_bytes) for one in (await rig.get()).covers]

    assert shown == [("warm", 0), ("warm", 0)]


async def test_covers_can_be_off_and_fellows_that_declare_none_are_not_asked(tmp_path):
    plain = ScriptedFellow("plain")
    async with (
        running_leader(tmp_path, covers="off", **RESERVE) as rig,
        joined(rig.address, *ring_and_spare(), plain) as (_, _, shed, _),
    ):
        await load_on_two(rig)
        changed = await rig.leader.covering.look_once()

    assert not changed and "cover" not in shed.kinds() and "cover" not in plain.kinds()


async def test_a_machine_of_another_pool_holds_no_cover_though_it_is_the_roomiest(tmp_path):
    foreign = CoveringFellow("garage", 40 * GB, pool="friends")
    async with (
        running_leader(tmp_path, **RESERVE) as rig,
        joined(rig.address, *ring_and_spare(), foreign) as (_, _, shed, _),
    ):
        await load_on_two(rig)
        await until(lambda: shed.kinds_of() == {0: HOT, 1: HOT}, "both are held in the ring's pool")
        changed = await rig.leader.covering.look_once()

    assert not changed and "cover" not in foreign.kinds()


async def test_a_fellow_gets_the_files_of_a_cover_while_it_makes_one_and_not_before(tmp_path):
    attic, kitchen, shed = ring_and_spare()
    shed.may_cover.clear()
    async with running_leader(tmp_path, **RESERVE) as rig, joined(rig.address, attic, kitchen, shed):
        transfer = transfer_pb2_grpc.TransferStub(dial(rig.address))
        asking = transfer_pb2.GetManifestRequest(model_id=MODEL)
        before = await refusal_of(transfer.GetManifest(asking, metadata=shed.metadata))
        await load_on_two(rig)
        await until(lambda: "cover" in shed.kinds(), "it was asked for one")
        answered = await transfer.GetManifest(asking, metadata=shed.metadata)

    assert before.why is Reason.PERMISSION_DENIED and answered.manifest_json


async def test_covers_end_with_their_placement(tmp_path):
    async with running_leader(tmp_path, **RESERVE) as rig, joined(rig.address, *ring_and_spare()) as (_, _, shed):
        await load_on_two(rig)
        await until(lambda: len(shed.covers) == 2, "both are held")
        await rig.serving.UnloadModel(serving_pb2.UnloadModelRequest(model_id=MODEL))
        await until(lambda: not shed.covers, "they ended")

        assert not (await rig.get()).covers


async def test_a_cover_moves_only_when_its_fellow_is_gone(tmp_path):
    late = CoveringFellow("yard", 40 * GB)
    async with running_leader(tmp_path, **RESERVE) as rig, joined(rig.address, *ring_and_spare()) as (_, _, shed):
        await load_on_two(rig)
        await until(lambda: len(shed.covers) == 2, "both are held")
        async with joined(rig.address, late):
            moved = await rig.leader.covering.look_once()
            kept, asked = len(shed.covers), list(late.kinds())
            await shed.leave()
            await until(lambda: len(late.covers) == 2, "the other one holds them")

    assert not moved and kept == 2 and "cover" not in asked


async def test_a_cover_that_was_held_over_a_restart_is_known_again_and_another_s_is_ended(tmp_path):
    attic, kitchen, shed = ring_and_spare()
    async with running_leader(tmp_path, **RESERVE) as rig, joined(rig.address, attic, kitchen, shed):
        ready = await load_on_two(rig)
        await until(lambda: len(shed.covers) == 2, "both are held")
    stranger = link_pb2.HeldCover(kind=HOT)
    stranger.spec.placement_id = "of another life"
    shed.covers["of another life", 0] = stranger
    shed.signals.clear()
    async with running_leader(tmp_path, **RESERVE) as rig, joined(rig.address, attic, kitchen, shed):
        await rig.until_state("READY")
        await until(lambda: {key[0] for key in shed.covers} == {ready.placement_id}, "the stranger ended")
        covers = [one.kind for one in (await rig.get()).covers]

    assert covers == ["hot", "hot"] and "cover" not in shed.kinds()


async def test_a_load_that_needs_the_memory_of_covers_ends_them_first(tmp_path):
    """The second model fits on the covering fellow only without them, and is planned as if they were not there."""
    async with running_leader(tmp_path, **RESERVE) as rig, joined(rig.address, *ring_and_spare()) as (_, _, shed):
        write_servable(rig.leader.config.models_root, make_manifest(context_tokens_max=512), "second")
        await load_on_two(rig)
        await until(lambda: len(shed.covers) == 2, "both are held")
        shed.cover_bytes = shed.free_bytes // 2
        for cover in shed.covers.values():
            cover.memory_bytes = cover.weight_bytes = shed.cover_bytes
        shed.free_bytes = 1000
        shed.beat()
        await until(lambda: rig.leader.registry.find("shed").best_device.memory_free_bytes == 1000, "it is known")
        shed.signals.clear()
        await rig.load(model_id="second", num_stages=1, fellow_ids=["shed"])
        await until(lambda: "load" in shed.kinds(), "it is loaded")
        kinds = shed.kinds()

    assert kinds[: kinds.index("load")].count("uncover") == 2


async def test_a_load_calls_off_a_cover_that_is_being_made_on_its_fellow(tmp_path):
    attic, kitchen, shed = ring_and_spare()
    shed.may_cover.clear()
    async with running_leader(tmp_path, **RESERVE) as rig, joined(rig.address, attic, kitchen, shed):
        write_servable(rig.leader.config.models_root, make_manifest(context_tokens_max=512), "second")
        await load_on_two(rig)
        await until(lambda: "cover" in shed.kinds(), "it was asked for one")
        await rig.load(model_id="second", num_stages=1, fellow_ids=["shed"])
        await until(lambda: "load" in shed.kinds(), "the load is not kept waiting")
        kinds = shed.kinds()

    assert kinds.index("uncover") < kinds.index("load")


async def test_a_fellow_that_cannot_make_a_cover_is_not_asked_again_at_once(tmp_path):
    attic, kitchen, shed = ring_and_spare()
    shed.cover_failure = "the file has no numbers"
    async with running_leader(tmp_path, **RESERVE) as rig, joined(rig.address, attic, kitchen, shed):
        await load_on_two(rig)
        await until(lambda: shed.kinds().count("cover") == 4, "each stage was tried hot and warm")
        await rig.leader.covering.look_once()  # by its end the answers to all four have been heard
        asked = shed.kinds().count("cover")
        changed = await rig.leader.covering.look_once()

        assert not changed and shed.kinds().count("cover") == asked


async def test_a_lost_stage_is_served_by_its_hot_cover_without_a_load(tmp_path):
    async with running_leader(tmp_path, **RESERVE) as rig, joined(rig.address, *ring_and_spare()) as (_, kitchen, shed):
        before = await load_on_two(rig)
        await until(lambda: len(shed.covers) == 2, "both are held")
        await kitchen.leave()
        await until(lambda: bool(shed.held), "the cover is switched in")
        after = await rig.until_state("READY")

    assert (after.placement_id, after.stages[1].fellow_name) == (before.placement_id, "shed")
    assert after.epoch > before.epoch and "load" not in shed.kinds()


async def test_a_hot_cover_that_is_ready_before_its_own_fellow_has_loaded_again_is_switched_in(tmp_path):
    """The load went on to its end, however long it took, while a stage that could serve stood beside it."""
    attic, kitchen, shed = ring_and_spare()
    shed.may_cover.clear()
    async with running_leader(tmp_path, **RESERVE) as rig, joined(rig.address, attic, kitchen, shed):
        before = await load_on_two(rig)
        await until(lambda: "cover" in shed.kinds(), "it makes one")
        index = next(signal.cover for signal in shed.signals if signal.WhichOneof("kind") == "cover").spec.stage_index
        owner = (attic, kitchen)[index]
        owner.may_load.clear()
        owner.signals.clear()
        owner.report(link_pb2.STAGE_EVENT_KIND_CRASHED, "SIGKILL")
        await until(lambda: "load" in owner.kinds(), "its own fellow loads it again")
        shed.may_cover.set()
        await until(lambda: bool(shed.held), "the cover is switched in")
        after = await rig.until_state("READY")
        await until(lambda: "unload" in owner.kinds(), "the load is called off")
        owner.may_load.set()

    assert after.placement_id == before.placement_id
    assert after.stages[index].fellow_name == "shed" and "load" not in shed.kinds()


async def test_a_hot_cover_of_another_stage_ends_no_load(tmp_path):
    attic, kitchen, shed = ring_and_spare()
    shed.may_cover.clear()
    async with running_leader(tmp_path, **RESERVE) as rig, joined(rig.address, attic, kitchen, shed):
        await load_on_two(rig)
        await until(lambda: "cover" in shed.kinds(), "it makes one")
        index = next(signal.cover for signal in shed.signals if signal.WhichOneof("kind") == "cover").spec.stage_index
        owner = (kitchen, attic)[index]
        owner.may_load.clear()
        owner.signals.clear()
        owner.report(link_pb2.STAGE_EVENT_KIND_CRASHED, "SIGKILL")
        await until(lambda: "load" in owner.kinds(), "its own fellow loads it again")
        shed.may_cover.set()
        await until(lambda: bool(rig.leader.registry.find("shed").covers), "the cover is known")
        await asyncio.sleep(3 * COVER_LOOK_S)
        owner.may_load.set()
        after = await rig.until_state("READY")

    assert after.stages[1 - index].fellow_name == owner.name and "unload" not in owner.kinds()
