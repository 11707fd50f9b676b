"""Crashes, evictions, idleness, broken links, lost fellows and a leader that starts again."""

import asyncio

from silentswarm.core.v1 import stage_pb2
from silentswarm.fellow.v1 import fellow_link_pb2 as link_pb2
from silentswarm.leader.v1 import serving_pb2
from swarm_core.errors import Reason

from tests.integration.leader.rig import MODEL, refusal_of, running_leader, text_of, until
from tests.integration.leader.scripted_fellow import ScriptedFellow, declare, joined


def pair():
    """Two fellows; the roomier one gets the first stage."""
    return ScriptedFellow("attic", 3 * 10**9), ScriptedFellow("kitchen", 2 * 10**9)


async def test_a_stage_that_crashes_on_a_living_fellow_is_loaded_there_again(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, *pair()) as (attic, kitchen):
        before = await rig.load_ready(num_stages=2)

        kitchen.report(link_pb2.STAGE_EVENT_KIND_CRASHED, "killed by signal 9")
        await until(lambda: kitchen.kinds().count("load") == 2, "it is loaded again")

        after = await rig.until_state("READY")
        assert (after.placement_id, after.reason) == (before.placement_id, "")
        assert after.epoch > before.epoch
        assert attic.kinds().count("load") == 1
        assert attic.wires()[-1].fresh_stages == kitchen.wires()[-1].fresh_stages == [1]
        assert text_of([event async for event in rig.generate()]) == "Hi there"


async def test_an_event_of_an_older_placement_changes_nothing(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, ScriptedFellow("kitchen")) as (kitchen,):
        first = await rig.load_ready()
        kept = kitchen.held[first.placement_id]
        await rig.serving.UnloadModel(serving_pb2.UnloadModelRequest(model_id=MODEL))
        second = await rig.load_ready()

        kitchen.held[first.placement_id] = kept
        kitchen.report(link_pb2.STAGE_EVENT_KIND_CRASHED, "late news", first.placement_id)

        assert text_of([event async for event in rig.generate()]) == "Hi there"
        assert (await rig.get()).placement_id == second.placement_id


async def test_an_evicted_stage_unloads_the_whole_model(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, *pair()) as (attic, kitchen):
        await rig.load_ready(num_stages=2)

        attic.report(link_pb2.STAGE_EVENT_KIND_EVICTED, "made room for other/model")

        unloaded = await rig.until_state("UNLOADED")
        assert unloaded.reason == "stage 0 on attic was evicted: made room for other/model"
        await until(lambda: kitchen.held == {}, "the other stage is unloaded")


async def test_an_idle_model_is_loaded_again_by_the_next_request(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, *pair()) as (attic, kitchen):
        before = await rig.load_ready(num_stages=2)
        kitchen.report(link_pb2.STAGE_EVENT_KIND_IDLE_UNLOADED, "no request for 900 s")
        await rig.until_state("IDLE")
        await until(lambda: attic.held == {}, "the other stage is unloaded")

        answers = [[event async for event in call] for call in (rig.generate(), rig.generate())]

        assert [text_of(events) for events in answers] == ["Hi there", "Hi there"]
        after = await rig.get()
        assert after.placement_id != before.placement_id
        assert [stage.fellow_name for stage in after.stages] == ["attic", "kitchen"]


async def test_a_model_goes_idle_also_when_a_neighbour_reports_the_broken_link_first(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, *pair()) as (attic, kitchen):
        await rig.load_ready(num_stages=2, transport=stage_pb2.TRANSPORT_TUNNEL)
        kitchen.reaches_relay = False

        attic.report(link_pb2.STAGE_EVENT_KIND_LINK_BROKEN, "stage 1 closed the link")
        await rig.until_state("WIRING")
        kitchen.report(link_pb2.STAGE_EVENT_KIND_IDLE_UNLOADED, "no request for 900 s")

        idle = await rig.until_state("IDLE")
        assert idle.reason == "stage 1 on kitchen was unloaded for idleness: no request for 900 s"
        kitchen.reaches_relay = True
        assert text_of([event async for event in rig.generate()]) == "Hi there"


async def test_who_waits_for_an_idle_model_to_load_again_hears_so_and_is_counted(tmp_path):
    async with (
        running_leader(tmp_path, queue_max=2) as rig,
        joined(rig.address, ScriptedFellow("kitchen")) as (kitchen,),
    ):
        await rig.load_ready()
        kitchen.report(link_pb2.STAGE_EVENT_KIND_IDLE_UNLOADED, "no request for 900 s")
        await rig.until_state("IDLE")
        kitchen.may_load.clear()

        calls = [aiter(rig.generate()), aiter(rig.generate())]
        told = [(await anext(call)).event.queued for call in calls]
        one_more = await refusal_of(rig.generate())
        waiting = rig.leader.gates.of(MODEL).waiting
        kitchen.may_load.set()
        answers = [[event async for event in call] for call in calls]

    # Calls made at once arrive in either order.
    assert sorted((each.position, each.reason) for each in told) == [
        (1, "the model was idle and loads again"),
        (2, "the model was idle and loads again"),
    ]
    assert one_more.why is Reason.OVERLOADED and "2 requests wait" in one_more.message
    assert waiting == 2
    assert [text_of(events) for events in answers] == ["Hi there", "Hi there"]
    assert rig.leader.gates.of(MODEL).waiting == 0


async def test_an_idle_model_that_cannot_be_loaded_again_says_why(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, ScriptedFellow("kitchen")) as (kitchen,):
        await rig.load_ready()
        kitchen.report(link_pb2.STAGE_EVENT_KIND_IDLE_UNLOADED, "no request for 900 s")
        await rig.until_state("IDLE")
        kitchen.load_failure = "disk full"

        refusal = await refusal_of(rig.generate())

        assert refusal.why is Reason.MODEL_NOT_READY
        assert "disk full" in refusal.message


async def test_a_stage_missing_from_two_heartbeats_died_unseen_and_is_loaded_again(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, ScriptedFellow("kitchen")) as (kitchen,):
        await rig.load_ready()

        kitchen.held.clear()
        await until(lambda: kitchen.kinds().count("load") == 2, "it is loaded again")

        assert (await rig.until_state("READY")).epoch > 1


async def test_a_broken_link_moves_the_ring_to_its_next_epoch(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, *pair()) as (attic, kitchen):
        await rig.load_ready(num_stages=2)

        attic.report(link_pb2.STAGE_EVENT_KIND_LINK_BROKEN, "connection reset")
        await until(lambda: len(attic.wires()) == 2, "a second epoch")

        ready = await rig.until_state("READY")
        assert ready.epoch == 2
        assert attic.kinds() == ["load", "wire", "probe", "wire", "probe"]
        # News of the epoch that is over has no effect.
        kitchen.held[ready.placement_id].status.spec.epoch = 1
        kitchen.report(link_pb2.STAGE_EVENT_KIND_LINK_BROKEN, "the older link")
        assert text_of([event async for event in rig.generate()]) == "Hi there"
        assert (await rig.get()).epoch == 2


async def test_a_ring_that_stays_down_is_loaded_anew_over_fewer_stages(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, *pair()) as (attic, kitchen):
        before = await rig.load_ready(num_stages=2, transport=stage_pb2.TRANSPORT_TUNNEL)
        kitchen.reaches_relay = False

        attic.report(link_pb2.STAGE_EVENT_KIND_LINK_BROKEN, "connection reset")
        await until(lambda: attic.kinds().count("load") == 2, "it is loaded anew")

        ready = await rig.until_state("READY")
        assert ready.placement_id != before.placement_id
        assert [stage.fellow_name for stage in ready.stages] == ["attic"]
        await until(lambda: kitchen.held == {}, "memory is given back")


async def test_a_ring_that_broke_with_a_fellow_away_waits_for_it(tmp_path):
    """A machine that drops off the network breaks both its links; it has its whole lease to come back."""
    async with running_leader(tmp_path, lease_s=8.0) as rig, joined(rig.address, *pair()) as (attic, kitchen):
        await rig.load_ready(num_stages=2)
        await kitchen.leave()

        attic.report(link_pb2.STAGE_EVENT_KIND_LINK_BROKEN, "connection reset")
        words = "waits for fellow kitchen, whose connection broke"
        await until(lambda: rig.leader.board.get(MODEL).record.reason == words, "the ring waits")
        waiting = await rig.get()
        await kitchen.join(rig.address)

        assert [stage.state for stage in waiting.stages] == ["loaded", "away"]
        ready = await rig.until_state("READY")
        assert (ready.epoch, ready.reason) == (2, "")
        assert [stage.state for stage in ready.stages] == ["loaded", "loaded"]
        assert text_of([event async for event in rig.generate()]) == "Hi there"


async def test_while_fellows_are_still_away_a_broken_link_is_no_news(tmp_path):
    attic, kitchen = pair()
    async with running_leader(tmp_path) as rig, joined(rig.address, attic, kitchen):
        await rig.load_ready(num_stages=2)
        await rig.kill()
    async with running_leader(tmp_path, recover_s=8.0) as rig, joined(rig.address, attic):
        attic.report(link_pb2.STAGE_EVENT_KIND_LINK_BROKEN, "the other end is gone")
        placement = rig.leader.board.get(MODEL)
        await until(lambda: placement.broken_epoch == 1, "the event arrives")
        assert placement.state == "recovering"

        async with joined(rig.address, kitchen):
            assert (await rig.until_state("READY")).epoch == 2


async def test_a_ring_that_takes_no_new_epoch_is_loaded_anew(tmp_path):
    fellows = ScriptedFellow("attic", 3 * 10**9), ScriptedFellow("old", 2 * 10**9, declare(serve_rewire=None))
    async with running_leader(tmp_path) as rig, joined(rig.address, *fellows) as (attic, old):
        before = await rig.load_ready(num_stages=2)

        attic.report(link_pb2.STAGE_EVENT_KIND_LINK_BROKEN, "connection reset")
        await until(lambda: old.kinds().count("load") == 2, "it is loaded anew")

        after = await rig.until_state("READY")
        assert after.placement_id != before.placement_id
        assert [stage.fellow_name for stage in after.stages] == ["attic", "old"]


async def test_a_lost_fellow_costs_the_model_nothing_but_a_stage_once_its_lease_is_over(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, *pair()) as (attic, kitchen):
        before = await rig.load_ready(num_stages=2)

        await kitchen.leave()

        away = await rig.get()
        assert away.state == serving_pb2.PLACEMENT_STATE_READY
        assert [stage.state for stage in away.stages] == ["loaded", "away"]
        await until(lambda: attic.kinds().count("load") == 2, "it is loaded anew")
        ready = await rig.until_state("READY")
        assert ready.placement_id != before.placement_id
        assert [stage.fellow_name for stage in ready.stages] == ["attic"]


async def test_a_fellow_that_returns_within_its_lease_is_re_adopted(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, *pair()) as (_, kitchen):
        before = await rig.load_ready(num_stages=2)

        await kitchen.leave()
        await kitchen.join(rig.address)

        assert list(kitchen.registered.unwanted) == []
        after = await rig.get()
        assert (after.state, after.epoch) == (serving_pb2.PLACEMENT_STATE_READY, before.epoch)


async def test_a_fellow_that_returns_with_nothing_loads_its_stage_again(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, *pair()) as (attic, kitchen):
        before = await rig.load_ready(num_stages=2)

        await kitchen.leave()
        kitchen.held.clear()
        await kitchen.join(rig.address)
        await until(lambda: kitchen.kinds().count("load") == 2, "it is loaded again")

        ready = await rig.until_state("READY")
        assert ready.placement_id == before.placement_id
        assert attic.kinds().count("load") == 1


async def test_a_stage_nobody_wants_is_named_at_registration(tmp_path):
    stray = ScriptedFellow("kitchen")
    spec = stage_pb2.StageSpec(model_id="gone", placement_id="p0", epoch=4)
    stray.held["p0"] = link_pb2.HeldStage(status=stage_pb2.StageStatus(spec=spec))
    async with running_leader(tmp_path) as rig, joined(rig.address, stray):
        assert [unwanted.placement_id for unwanted in stray.registered.unwanted] == ["p0"]


async def test_after_a_restart_a_direct_ring_is_re_adopted_as_it_stands(tmp_path):
    attic, kitchen = pair()
    async with running_leader(tmp_path) as rig, joined(rig.address, attic, kitchen):
        before = await rig.load_ready(num_stages=2)
        await rig.kill()
    async with running_leader(tmp_path) as rig:
        assert (await rig.get()).state == serving_pb2.PLACEMENT_STATE_RECOVERING
        async with joined(rig.address, attic, kitchen):
            after = await rig.until_state("READY")

            assert (after.placement_id, after.epoch) == (before.placement_id, before.epoch)
            assert attic.kinds() == ["load", "wire", "probe", "probe"]
            assert text_of([event async for event in rig.generate()]) == "Hi there"


async def test_after_a_restart_a_ring_by_the_relay_is_wired_at_the_next_epoch(tmp_path):
    attic, kitchen = pair()
    async with running_leader(tmp_path) as rig, joined(rig.address, attic, kitchen):
        before = await rig.load_ready(num_stages=2, transport=stage_pb2.TRANSPORT_TUNNEL)
        await rig.kill()
    async with running_leader(tmp_path) as rig, joined(rig.address, attic, kitchen):
        after = await rig.until_state("READY")

        assert (after.placement_id, after.epoch) == (before.placement_id, before.epoch + 1)
        assert attic.kinds().count("load") == 1
        assert text_of([event async for event in rig.generate()]) == "Hi there"


async def test_after_a_restart_a_ring_that_no_lap_goes_round_is_wired_anew(tmp_path):
    attic, kitchen = pair()
    async with running_leader(tmp_path) as rig, joined(rig.address, attic, kitchen):
        before = await rig.load_ready(num_stages=2)
        await rig.kill()
    attic.probe_failures = 1
    async with running_leader(tmp_path) as rig, joined(rig.address, attic, kitchen):
        after = await rig.until_state("READY")

        assert (after.placement_id, after.epoch) == (before.placement_id, before.epoch + 1)
        assert list(attic.wires()[-1].next_addresses) == ["10.0.0.1:4001"]


async def test_after_a_restart_the_newest_load_is_taken_up_though_an_older_one_was_rewired(tmp_path):
    attic, kitchen = pair()
    async with running_leader(tmp_path) as rig, joined(rig.address, attic, kitchen):
        await rig.load_ready(num_stages=2)
        attic.report(link_pb2.STAGE_EVENT_KIND_LINK_BROKEN, "connection reset")
        await until(lambda: len(attic.wires()) == 2, "a second epoch")
        rewired = await rig.until_state("READY")
        await rig.serving.UnloadModel(serving_pb2.UnloadModelRequest(model_id=MODEL))
        again = await rig.load_ready(num_stages=2)
        assert again.epoch > rewired.epoch
        await rig.kill()
    async with running_leader(tmp_path) as rig, joined(rig.address, attic, kitchen):
        after = await rig.until_state("READY")

        assert after.placement_id == again.placement_id
        assert text_of([event async for event in rig.generate()]) == "Hi there"


async def test_after_a_restart_a_model_whose_fellow_stays_away_is_loaded_on_what_is_left(tmp_path):
    attic, kitchen = pair()
    async with running_leader(tmp_path) as rig, joined(rig.address, attic, kitchen):
        before = await rig.load_ready(num_stages=2)
        await rig.kill()
    async with running_leader(tmp_path) as rig, joined(rig.address, attic):
        ready = await rig.until_state("READY")

        assert ready.placement_id != before.placement_id
        assert [stage.fellow_name for stage in ready.stages] == ["attic"]


async def test_a_load_that_a_restart_cut_off_goes_on(tmp_path):
    kitchen = ScriptedFellow("kitchen")
    async with running_leader(tmp_path) as rig, joined(rig.address, kitchen):
        kitchen.may_load.clear()
        before = await rig.load()
        await until(lambda: bool(kitchen.signals), "the load arrives")
        await rig.kill()
    kitchen.may_load.set()
    async with running_leader(tmp_path) as rig, joined(rig.address, kitchen):
        assert (await rig.until_state("READY")).placement_id == before.placement_id


async def test_an_idle_model_stays_idle_over_a_restart_and_wakes(tmp_path):
    kitchen = ScriptedFellow("kitchen")
    async with running_leader(tmp_path) as rig, joined(rig.address, kitchen):
        await rig.load_ready()
        kitchen.report(link_pb2.STAGE_EVENT_KIND_IDLE_UNLOADED, "no request for 900 s")
        await rig.until_state("IDLE")
        await rig.kill()
    async with running_leader(tmp_path) as rig, joined(rig.address, kitchen):
        assert (await rig.get()).state == serving_pb2.PLACEMENT_STATE_IDLE
        assert text_of([event async for event in rig.generate()]) == "Hi there"


async def test_a_hung_engine_fails_the_model_when_no_lap_goes_round(tmp_path):
    async with (
        running_leader(tmp_path, progress_timeout_s=0.4) as rig,
        joined(rig.address, ScriptedFellow("kitchen")) as (kitchen,),
    ):
        await rig.load_ready()
        kitchen.replies_with, kitchen.probe_failure = None, "no answer from the engine"

        refusal = await refusal_of(rig.generate())

        assert refusal.why is Reason.DEADLINE
        failed = await rig.until_state("FAILED")
        assert "made no progress within 0.4 s" in failed.reason
        assert "no answer from the engine; it is loaded again by itself when" in failed.reason
        assert failed.reason.endswith("or with: swarm model-load tiny")


async def test_a_stalled_reply_costs_a_healthy_ring_one_epoch_however_many_stall(tmp_path):
    async with (
        running_leader(tmp_path, progress_timeout_s=0.4) as rig,
        joined(rig.address, ScriptedFellow("kitchen")) as (kitchen,),
    ):
        ready = await rig.load_ready()
        kitchen.replies_with = None

        refusals = await asyncio.gather(*(refusal_of(rig.generate()) for _ in range(3)))
        await until(lambda: kitchen.kinds()[-2:] == ["wire", "probe"] and len(kitchen.wires()) == 2, "a second epoch")

        assert {refusal.why for refusal in refusals} == {Reason.DEADLINE}
        assert (await rig.until_state("READY")).epoch == ready.epoch + 1


async def test_what_a_fellow_no_longer_reports_is_no_longer_remembered_as_unwanted(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, ScriptedFellow("kitchen")) as (kitchen,):
        fellow = rig.leader.registry.find("kitchen")
        kitchen.may_unload.clear()
        spec = stage_pb2.StageSpec(model_id="gone", placement_id="p0", epoch=4)
        kitchen.held["p0"] = link_pb2.HeldStage(status=stage_pb2.StageStatus(spec=spec))
        await until(lambda: "p0" in fellow.unwanted_at_s, "it is told to end it")

        kitchen.may_unload.set()

        await until(lambda: kitchen.held == {} and fellow.unwanted_at_s == {}, "it is forgotten")
        assert kitchen.kinds() == ["unload"]
