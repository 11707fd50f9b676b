"""Rings whose lines are down though every stage lives: what is waited for, and what moves."""

import asyncio
import time

from silentswarm.core.v1 import stage_pb2
from silentswarm.fellow.v1 import fellow_link_pb2 as link_pb2

from tests.integration.leader.rig import running_leader, text_of, until
from tests.integration.leader.scripted_fellow import ScriptedFellow, joined
from tests.integration.leader.test_healing import closed, incidents_of, names, trio

BROKEN = link_pb2.STAGE_EVENT_KIND_LINK_BROKEN
TUNNEL = stage_pb2.TRANSPORT_TUNNEL


async def test_a_stage_whose_fellow_does_not_reach_the_relay_goes_to_one_that_does_and_the_others_stay(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, *trio()) as (attic, kitchen, shed):
        before = await rig.load_ready(num_stages=2, transport=TUNNEL)

        kitchen.reaches_relay = False
        attic.report(BROKEN, "the relay closed the lane", peer_stage=1)
        await until(lambda: bool(shed.held), "its stage is loaded elsewhere")
        after = await rig.until_state("READY")

        assert (after.placement_id, names(after)) == (before.placement_id, ["attic", "shed"])
        assert attic.kinds().count("load") == 1
        assert list(attic.wires()[-1].fresh_stages) == [1]
        await until(lambda: kitchen.held == {}, "it ends what it cannot serve")
        assert text_of([event async for event in rig.generate()]) == "Hi there"
        incident = await closed(rig)
        assert incident.outcome == "moved"
        said = [step.what for step in incident.log]
        assert "stage 1 on kitchen is cut off from its ring" in said
        assert said.count("kitchen does not reach attic by relay: connection refused") == 1


async def test_a_line_that_is_mended_while_its_stage_is_loaded_elsewhere_costs_no_move(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, *trio()) as (attic, kitchen, shed):
        before = await rig.load_ready(num_stages=2, transport=TUNNEL)
        shed.may_load.clear()

        kitchen.reaches_relay = False
        attic.report(BROKEN, "the relay closed the lane", peer_stage=1)
        await until(lambda: shed.kinds() == ["load"], "it is loaded elsewhere")
        kitchen.reaches_relay = True
        after = await rig.until_state("READY")
        shed.may_load.set()

        assert (after.placement_id, names(after)) == (before.placement_id, ["attic", "kitchen"])
        assert (await closed(rig)).outcome == "recovered"
        await until(lambda: "unload" in shed.kinds() and shed.held == {}, "it ends what is not needed")
        assert rig.leader.board.get("tiny").arriving == {}


async def test_a_fellow_that_dies_while_it_loads_what_is_cut_off_gives_way_to_the_next(tmp_path):
    more = ScriptedFellow("yard", 10**9)
    async with running_leader(tmp_path) as rig, joined(rig.address, *trio(), more) as (attic, kitchen, shed, yard):
        await rig.load_ready(num_stages=2, transport=TUNNEL)
        shed.may_load.clear()

        kitchen.reaches_relay = False
        attic.report(BROKEN, "the relay closed the lane", peer_stage=1)
        await until(lambda: shed.kinds() == ["load"], "it is loaded elsewhere")
        await shed.leave()
        await until(lambda: bool(yard.held), "the next one loads it")

        assert names(await rig.until_state("READY")) == ["attic", "yard"]


async def test_a_relay_that_nobody_reaches_is_waited_for_and_people_are_told_so(tmp_path):
    pair = trio()[:2]
    async with running_leader(tmp_path, heal_wait_s=8.0) as rig, joined(rig.address, *pair) as (attic, kitchen):
        before = await rig.load_ready(num_stages=2, transport=TUNNEL)

        attic.reaches_relay = kitchen.reaches_relay = False
        attic.report(BROKEN, "the relay closed the lane", peer_stage=1)
        until_s = time.monotonic() + 5
        while "waits for the relay, which nobody reaches" not in (await rig.get()).reason:
            assert time.monotonic() < until_s, (await rig.get()).reason
            await asyncio.sleep(0.02)
        attic.reaches_relay = kitchen.reaches_relay = True
        after = await rig.until_state("READY")

        assert (after.placement_id, names(after)) == (before.placement_id, ["attic", "kitchen"])
        assert (await closed(rig)).outcome == "recovered"


async def test_where_nobody_else_can_hold_what_is_cut_off_the_others_load_the_model_without_it(tmp_path):
    attic, kitchen = ScriptedFellow("attic", 3 * 10**9), ScriptedFellow("kitchen", 4 * 10**9)
    async with running_leader(tmp_path) as rig, joined(rig.address, attic, kitchen):
        before = await rig.load_ready(num_stages=2, transport=TUNNEL)
        assert names(before) == ["kitchen", "attic"]

        kitchen.reaches_relay = False
        attic.report(BROKEN, "the relay closed the lane", peer_stage=0)
        await until(lambda: kitchen.held == {}, "the ring is given up")

        assert names(await rig.until_state("READY")) == ["attic"]
        assert (await closed(rig)).outcome == "loaded anew"


async def test_a_direct_ring_in_which_nobody_reaches_one_stage_moves_that_one(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, *trio()) as (attic, _, shed):
        before = await rig.load_ready(num_stages=2, transport=stage_pb2.TRANSPORT_P2P)

        attic.reaches_directly = False
        attic.report(BROKEN, "connection reset", peer_stage=1)
        await until(lambda: bool(shed.held), "the stage that is not reached is loaded elsewhere")
        attic.reaches_directly = True
        after = await rig.until_state("READY")

        assert (after.placement_id, names(after)) == (before.placement_id, ["attic", "shed"])
        assert (await incidents_of(rig))[0].kind == "link"
