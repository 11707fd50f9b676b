"""Rings that break and are brought back: on the same fellow, on another one, by a fresh plan, or said why not."""

import asyncio
import time

import pytest
from silentswarm.core.v1 import capabilities_pb2
from silentswarm.fellow.v1 import fellow_link_pb2 as link_pb2
from silentswarm.leader.v1 import fleet_pb2, resilience_pb2, resilience_pb2_grpc, serving_pb2
from swarm_core.errors import Reason
from swarm_leader.flows.doors import check_fetch
from swarm_leader.flows.registry import HeldCover

from tests.integration.leader.rig import MODEL, refusal_of, running_leader, text_of, until
from tests.integration.leader.scripted_fellow import ScriptedFellow, declare, joined

BROKEN, CRASHED = link_pb2.STAGE_EVENT_KIND_LINK_BROKEN, link_pb2.STAGE_EVENT_KIND_CRASHED
KEEPS = {"serve_keep": capabilities_pb2.ServeKeep(), "check": capabilities_pb2.Check()}


def trio(**capabilities):
    """Two fellows that get the stages of a ring of two, and one that is left over."""
    sizes = {"attic": 4 * 10**9, "kitchen": 3 * 10**9, "shed": 2 * 10**9}
    return tuple(ScriptedFellow(name, free, declare(**capabilities)) for name, free in sizes.items())


def small(name):
    """A fellow that can hold no stage of the model."""
    return ScriptedFellow(name, free_bytes=10**6)


async def incidents_of(rig):
    """What the leader tells of incidents, newest first."""
    stub = resilience_pb2_grpc.ResilienceStub(rig.channel)
    return (await stub.ListIncidents(resilience_pb2.ListIncidentsRequest())).incidents


async def closed(rig):
    """The newest incident, once it is over."""
    until_s = time.monotonic() + 10
    while not (found := await incidents_of(rig)) or not found[0].outcome:
        assert time.monotonic() < until_s, found
        await asyncio.sleep(0.02)
    return found[0]


def names(status):
    """Who holds the stages."""
    return [stage.fellow_name for stage in status.stages]


async def test_a_machine_that_is_gone_for_leader_and_neighbour_is_replaced_without_waiting_for_its_lease(tmp_path):
    async with (
        running_leader(tmp_path, lease_s=30.0) as rig,
        joined(rig.address, *trio(**KEEPS)) as (attic, kitchen, shed),
    ):
        before = await rig.load_ready(num_stages=2)
        assert names(before) == ["attic", "kitchen"]
        begun_s = time.monotonic()

        await kitchen.leave()
        attic.report(BROKEN, "connection reset", peer_stage=1)
        await until(lambda: bool(shed.held), "its stage is loaded elsewhere")
        after = await rig.until_state("READY")

        assert time.monotonic() - begun_s < 5
        assert (after.placement_id, names(after)) == (before.placement_id, ["attic", "shed"])
        assert [stage.layer_start for stage in after.stages] == [stage.layer_start for stage in before.stages]
        assert attic.kinds().count("load") == 1
        wire = attic.wires()[-1]
        assert (wire.keep_sessions, list(wire.fresh_stages), wire.stage_index) == (True, [1], 0)
        assert list(wire.next_addresses) == ["10.0.0.1:4001"]
        assert text_of([event async for event in rig.generate()]) == "Hi there"
        incident = await closed(rig)
        assert (incident.kind, incident.outcome) == ("link", "moved")
        assert [(one.stage_index, one.lost_fellow, one.replacement) for one in incident.stages] == [
            (1, "kitchen", "shed")
        ]
        assert incident.recovered_ms > 0


async def test_who_comes_back_after_its_stage_moved_is_told_to_end_it(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, *trio()) as (attic, kitchen, shed):
        before = await rig.load_ready(num_stages=2)
        await kitchen.leave()
        attic.report(BROKEN, "connection reset", peer_stage=1)
        await until(lambda: bool(shed.held), "its stage is loaded elsewhere")
        await rig.until_state("READY")

        await kitchen.join(rig.address)

        assert [spec.placement_id for spec in kitchen.registered.unwanted] == [before.placement_id]
        assert names(await rig.until_state("READY")) == ["attic", "shed"]


async def test_a_frozen_stage_is_found_by_asking_and_moves(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, *trio(**KEEPS)) as (attic, kitchen, shed):
        await rig.load_ready(num_stages=2)
        kitchen.answers_check = None

        attic.report(BROKEN, "silent for 3 s", peer_stage=1)
        await until(lambda: bool(shed.held), "its stage is loaded elsewhere")

        assert names(await rig.until_state("READY")) == ["attic", "shed"]


async def test_a_hot_cover_is_switched_in_by_wire_alone(tmp_path):
    async with running_leader(tmp_path, lease_s=30.0) as rig, joined(rig.address, *trio()) as (attic, kitchen, shed):
        before = await rig.load_ready(num_stages=2)
        cover = HeldCover(True, ("10.0.0.9:4001",), 10**6, 10**6)
        fellow = rig.leader.registry.find("shed")
        fellow.covers[(before.placement_id, 1)] = cover
        shed.switches_in(before.placement_id, 1)
        shed.beats = False  # which would say that it holds none

        kitchen.report(CRASHED, "killed by signal 9")
        await until(lambda: bool(shed.wires()), "it is switched in")

        after = await rig.until_state("READY")
        assert (names(after), shed.kinds()) == (["attic", "shed"], ["wire"])
        assert shed.wires()[0].stage_index == 1
        assert list(attic.wires()[-1].next_addresses) == ["10.0.0.9:4001"]
        assert fellow.covers == {}


async def test_a_replacement_that_cannot_load_gives_way_to_the_next(tmp_path):
    more = ScriptedFellow("yard", 10**9)
    async with running_leader(tmp_path) as rig, joined(rig.address, *trio(), more) as (attic, kitchen, shed, yard):
        await rig.load_ready(num_stages=2)
        shed.load_failure = "disk full"
        await kitchen.leave()

        attic.report(BROKEN, "connection reset", peer_stage=1)
        await until(lambda: bool(yard.held), "the next one loads it")

        assert names(await rig.until_state("READY")) == ["attic", "yard"]
        assert any("disk full" in step.what for step in (await closed(rig)).log)


async def test_a_replacement_that_dies_while_it_loads_gives_way_too(tmp_path):
    more = ScriptedFellow("yard", 10**9)
    async with running_leader(tmp_path) as rig, joined(rig.address, *trio(), more) as (attic, kitchen, shed, yard):
        await rig.load_ready(num_stages=2)
        shed.may_load.clear()
        await kitchen.leave()
        attic.report(BROKEN, "connection reset", peer_stage=1)
        await until(lambda: shed.kinds() == ["load"], "the first one is asked")

        await shed.leave()
        await until(lambda: bool(yard.held), "the next one loads it")

        assert names(await rig.until_state("READY")) == ["attic", "yard"]


async def test_two_stages_that_are_lost_at_once_are_both_brought_back(tmp_path):
    more = ScriptedFellow("yard", 10**9)
    async with running_leader(tmp_path) as rig, joined(rig.address, *trio(), more) as (attic, kitchen, shed, yard):
        before = await rig.load_ready(num_stages=3)
        assert names(before) == ["attic", "kitchen", "shed"]
        await kitchen.leave()

        shed.report(CRASHED, "killed by signal 9")
        attic.report(BROKEN, "connection reset", peer_stage=1)
        await until(lambda: bool(yard.held) and bool(shed.held), "both are held again")

        after = await rig.until_state("READY")
        assert (after.placement_id, names(after)) == (before.placement_id, ["attic", "yard", "shed"])


async def test_where_nobody_has_room_the_error_is_clear_and_comes_soon_and_a_new_machine_helps(tmp_path):
    attic, kitchen = ScriptedFellow("attic", 1_000_000_000), small("kitchen")
    async with running_leader(tmp_path, lease_s=1.0) as rig, joined(rig.address, attic, kitchen):
        await rig.load_ready()
        begun_s = time.monotonic()
        await attic.leave()

        failed = await rig.until_state("FAILED")
        refusal = await refusal_of(rig.generate())

        assert time.monotonic() - begun_s < 10
        assert refusal.why is Reason.MODEL_NOT_READY
        assert failed.reason.startswith("attic, which holds stage 0 (layers 0-3), is away; nobody else can hold it: ")
        assert "free: kitchen 0.00 GB" in failed.reason and ".;" not in failed.reason
        told = "attic is back, or a fellow with room joins, or with: swarm model-load tiny"
        assert failed.reason.endswith(f"it is loaded again by itself when {told}")
        assert refusal.message == f"tiny is failed: {failed.reason}"
        assert (await incidents_of(rig))[0].step == "waiting"
        async with joined(rig.address, ScriptedFellow("shed")):
            assert names(await rig.until_state("READY")) == ["shed"]
            incident = await closed(rig)
            assert incident.outcome == "loaded anew"
            assert [step.what for step in incident.log if "serves again" in step.what] == ["tiny serves again"]


async def test_a_machine_that_was_away_for_long_gets_its_work_back(tmp_path):
    attic = ScriptedFellow("attic")
    async with running_leader(tmp_path, lease_s=1.0) as rig, joined(rig.address, attic, small("kitchen")):
        await rig.load_ready()
        await attic.leave()
        await rig.until_state("FAILED")
        attic.held.clear()

        await attic.join(rig.address)

        assert names(await rig.until_state("READY")) == ["attic"]


async def test_what_waits_for_a_machine_still_waits_after_the_leader_was_killed(tmp_path):
    attic, kitchen = ScriptedFellow("attic"), small("kitchen")
    async with running_leader(tmp_path, lease_s=1.0) as rig, joined(rig.address, attic, kitchen):
        await rig.load_ready()
        await attic.leave()
        await rig.until_state("FAILED")
        await rig.kill()
    attic.held.clear()
    async with running_leader(tmp_path, lease_s=1.0) as rig, joined(rig.address, kitchen, attic):
        assert names(await rig.until_state("READY")) == ["attic"]
        assert (await closed(rig)).outcome == "loaded anew"


async def test_unloading_while_it_heals_ends_it(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, *trio()) as (attic, kitchen, shed):
        await rig.load_ready(num_stages=2)
        shed.may_load.clear()
        await kitchen.leave()
        attic.report(BROKEN, "connection reset", peer_stage=1)
        await until(lambda: shed.kinds() == ["load"], "it heals")

        shed.may_load.set()
        await rig.serving.UnloadModel(serving_pb2.UnloadModelRequest(model_id=MODEL))

        assert (await rig.get()).state == serving_pb2.PLACEMENT_STATE_UNLOADED
        assert (await closed(rig)).outcome == "ended"
        await until(lambda: attic.held == shed.held == {}, "memory is given back")
        assert not rig.leader.board.get(MODEL).is_healing


@pytest.mark.parametrize("step", ["lost", "moving", "wiring", "loading anew"])
async def test_a_leader_that_is_killed_in_any_step_of_a_healing_finishes_it(tmp_path, step):
    attic, kitchen, shed = trio()
    waits = {"lease_s": 30.0, "heal_wait_s": 30.0 if step == "lost" else 1.0}
    async with running_leader(tmp_path, **waits) as rig, joined(rig.address, attic, kitchen, shed):
        await rig.load_ready(num_stages=2)
        if step in ("lost", "loading anew"):
            shed.capabilities.ClearField("serve_rewire")
            await shed.leave()
            await shed.join(rig.address)
        (shed if step == "loading anew" else kitchen).may_load.clear()
        shed.may_load.clear()
        if step == "wiring":
            shed.may_load.set()
            attic.probe_failures = 10**6
        await kitchen.leave()
        kitchen.held.clear()
        attic.report(BROKEN, "connection reset", peer_stage=1)
        case = None
        until_s = time.monotonic() + 10
        while case is None or case.step != step:
            assert time.monotonic() < until_s, case
            await asyncio.sleep(0.01)
            case = next(iter(await incidents_of(rig)), None)
        await rig.kill()
    attic.probe_failures = 0
    kitchen.may_load.set()
    shed.may_load.set()
    async with running_leader(tmp_path) as rig, joined(rig.address, attic, shed, kitchen):
        ready = await rig.until_state("READY")

        assert len(ready.stages) == 2 or step == "loading anew"
        assert text_of([event async for event in rig.generate()]) == "Hi there"
        assert (await closed(rig)).outcome in ("moved", "recovered", "loaded anew")
        held = {one.name: list(one.held) for one in (attic, kitchen, shed)}
        in_ring = names(ready)
        await until(lambda: not any(one.held for one in (attic, kitchen, shed) if one.name not in in_ring), str(held))


async def test_a_drained_fellow_hands_its_stage_over_while_the_ring_serves(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, *trio()) as (attic, kitchen, shed):
        before = await rig.load_ready(num_stages=2)
        shed.may_load.clear()

        answer = await rig.fleet.DrainFellow(fleet_pb2.DrainFellowRequest(fellow_id="kitchen"))
        await until(lambda: shed.kinds() == ["load"], "the other one loads it")
        check_fetch(rig.leader.board, shed.registered.fellow_id, MODEL)  # the weights, though it is no holder yet
        while_loading = await rig.get()
        served = text_of([event async for event in rig.generate()])
        shed.may_load.set()
        await until(lambda: kitchen.held == {}, "it is emptied")

        assert [(one.model_id, one.stage_index, one.to_fellow) for one in answer.moves] == [(MODEL, 1, "shed")]
        assert (while_loading.state, served) == (serving_pb2.PLACEMENT_STATE_READY, "Hi there")
        after = await rig.until_state("READY")
        assert (after.placement_id, names(after)) == (before.placement_id, ["attic", "shed"])
        assert list(attic.wires()[-1].fresh_stages) == [1]
        listed = await rig.fleet.ListFellows(fleet_pb2.ListFellowsRequest())
        assert {one.name: one.state for one in listed.fellows}["kitchen"] == "draining"
        incident = await closed(rig)
        assert (incident.kind, incident.outcome) == ("drain", "moved")
        assert "stage 1 leaves kitchen" in [step.what for step in incident.log]


async def test_a_fellow_whose_stage_nobody_else_can_hold_is_not_drained(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, ScriptedFellow("attic"), small("kitchen")):
        await rig.load_ready()

        refusal = await refusal_of(rig.fleet.DrainFellow(fleet_pb2.DrainFellowRequest(fellow_id="attic")))

        assert refusal.why is Reason.TOO_FEW_FELLOWS
        assert "tiny: nobody else can hold stage 0" in refusal.message
        assert "kitchen has 0.00 GB free" in refusal.message
        assert not rig.leader.registry.find("attic").record.draining


async def test_nothing_new_goes_on_a_drained_fellow_until_it_is_undrained_and_a_restart_changes_nothing(tmp_path):
    kitchen = ScriptedFellow("kitchen")
    async with running_leader(tmp_path) as rig, joined(rig.address, kitchen):
        await rig.fleet.DrainFellow(fleet_pb2.DrainFellowRequest(fellow_id="kitchen"))
        await rig.kill()
    async with running_leader(tmp_path) as rig, joined(rig.address, kitchen):
        refused = await refusal_of(rig.load())
        named = await refusal_of(rig.load(fellow_ids=["kitchen"]))
        await rig.fleet.UndrainFellow(fleet_pb2.UndrainFellowRequest(fellow_id="kitchen"))

        assert refused.why in (Reason.NO_FELLOW, Reason.TOO_FEW_FELLOWS)
        assert "swarm fellows undrain kitchen" in named.message
        assert (await rig.load_ready()).state == serving_pb2.PLACEMENT_STATE_READY


async def test_a_handover_whose_receiver_cannot_load_leaves_the_ring_as_it_was(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, *trio()) as (_, _, shed):
        before = await rig.load_ready(num_stages=2)
        shed.load_failure = "disk full"

        await rig.fleet.DrainFellow(fleet_pb2.DrainFellowRequest(fellow_id="kitchen"))
        await until(lambda: "unload" in shed.kinds(), "it is tried")

        after = await rig.get()
        assert (after.state, after.epoch, names(after)) == (before.state, before.epoch, ["attic", "kitchen"])
        assert rig.leader.board.get(MODEL).arriving == {}


async def test_incidents_can_be_asked_for_page_by_page(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, ScriptedFellow("kitchen")) as (kitchen,):
        await rig.load_ready()
        for _ in range(2):
            loads = kitchen.kinds().count("load")
            kitchen.report(CRASHED, "killed by signal 9")
            await until(lambda loads=loads: kitchen.kinds().count("load") > loads, "it is loaded again")
            await rig.until_state("READY")
            await closed(rig)
        stub = resilience_pb2_grpc.ResilienceStub(rig.channel)
        ask = resilience_pb2.ListIncidentsRequest

        newest = await stub.ListIncidents(ask(page_size=1, model_id=MODEL))
        older = await stub.ListIncidents(ask(page_size=1, skip=1))
        refusal = await refusal_of(stub.ListIncidents(ask(page_size=201)))

        assert newest.incidents[0].opened_s > older.incidents[0].opened_s
        assert (await stub.ListIncidents(ask(model_id="other"))).incidents == []
        assert refusal.why is Reason.BAD_REQUEST
