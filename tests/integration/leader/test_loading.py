"""Loading: what goes out in which order, what is refused with which numbers, and how a ring falls back."""

import asyncio

from silentswarm.core.v1 import stage_pb2
from silentswarm.leader.v1 import serving_pb2
from swarm_core.errors import Reason

from tests.integration.leader.rig import MODEL, refusal_of, running_leader, until
from tests.integration.leader.scripted_fellow import ScriptedFellow, declare, joined

DIRECT, RELAY, LOCAL = stage_pb2.ROUTE_DIRECT, stage_pb2.ROUTE_RELAY, stage_pb2.ROUTE_LOCAL


def pair():
    """Two fellows; the roomier one gets the first stage."""
    return ScriptedFellow("attic", 3 * 10**9), ScriptedFellow("kitchen", 2 * 10**9)


async def test_a_model_over_one_stage_becomes_ready(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, ScriptedFellow("kitchen")) as (kitchen,):
        planned = await rig.load()
        states = [status.state for status in await rig.watch()]

        assert planned.state == serving_pb2.PLACEMENT_STATE_LOADING
        assert states[-1] == serving_pb2.PLACEMENT_STATE_READY
        assert states == sorted(states)
        assert kitchen.kinds() == ["load", "wire", "probe"]
        assert kitchen.wires()[0].route == LOCAL
        assert not kitchen.signals[0].load.listen
        ready = await rig.get()
        assert ready.probe_lap_ms == 12.5
        assert ready.stages[0].fetched_bytes == 1234
        assert (ready.stages[0].layer_start, ready.stages[0].layer_stop) == (0, 4)


async def test_a_model_over_two_stages_is_loaded_wired_and_probed(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, *pair()) as (attic, kitchen):
        ready = await rig.load_ready(num_stages=2)

        assert ready.state == serving_pb2.PLACEMENT_STATE_READY, ready.reason
        assert [stage.fellow_name for stage in ready.stages] == ["attic", "kitchen"]
        assert [stage.route for stage in ready.stages] == [DIRECT, DIRECT]
        assert [stage.state for stage in ready.stages] == ["loaded", "loaded"]
        assert attic.kinds() == ["load", "wire", "probe"]
        assert kitchen.kinds() == ["load", "wire"]
        spec = kitchen.signals[0].load.spec
        assert (spec.stage_index, spec.stage_count, spec.epoch, spec.dtype) == (1, 2, 1, "F32")
        assert spec.placement_id == ready.placement_id
        assert len(spec.manifest_sha256) == 64
        assert list(attic.wires()[0].next_addresses) == ["10.0.0.1:4001"]
        assert list(kitchen.wires()[0].next_addresses) == ["10.0.0.1:4000"]


async def test_progress_and_live_figures_are_shown(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, ScriptedFellow("kitchen")) as (kitchen,):
        kitchen.may_load.clear()
        await rig.load()
        stage = rig.leader.board.get(MODEL).stages[0]
        await until(lambda: stage.step == "fetch", "progress arrives")
        shown = (await rig.get()).stages[0]
        assert (shown.state, shown.step, shown.done, shown.total) == ("loading", "fetch", 1, 2)

        kitchen.may_load.set()
        await rig.until_state("READY")
        next(iter(kitchen.held.values())).status.positions = 42
        fellow = rig.leader.registry.find("kitchen")
        await until(lambda: any(h.status and h.status.positions == 42 for h in fellow.stages.values()), "heartbeat")

        assert (await rig.get()).stages[0].live.positions == 42


async def test_a_plan_is_shown_and_nothing_is_stored_or_sent(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, ScriptedFellow("kitchen")) as (kitchen,):
        planned = await rig.serving.PlanModel(serving_pb2.LoadModelRequest(model_id=MODEL))

        assert planned.state == serving_pb2.PLACEMENT_STATE_PLANNED
        assert planned.stages[0].free_bytes == 4 * 10**9
        assert (await rig.get()).state == serving_pb2.PLACEMENT_STATE_UNSPECIFIED
        assert kitchen.kinds() == []


async def test_what_cannot_work_is_refused_before_anything_loads(tmp_path):
    small, poor = ScriptedFellow("small", 10**6), ScriptedFellow("poor", 10**6, declare(serve_n_stage=None))
    async with running_leader(tmp_path) as rig:
        assert (await refusal_of(rig.load())).why is Reason.NO_FELLOW
        async with joined(rig.address, small, poor):
            unknown = await refusal_of(rig.load(model_id="nothing/here"))
            memory = await refusal_of(rig.load(num_stages=2))
            few = await refusal_of(rig.load(num_stages=4))
            many = await refusal_of(rig.load(num_stages=9))
            absent = await refusal_of(rig.load(fellow_ids=["cellar"]))

            assert (unknown.why, unknown.facts["available"]) == (Reason.MODEL_NOT_FOUND, MODEL)
            assert (memory.why, memory.facts["available_bytes"]) == (Reason.NOT_ENOUGH_MEMORY, "2000000")
            assert "poor 0.00 GB" in memory.message
            assert (few.why, few.facts["needed"], few.facts["available"]) == (Reason.TOO_FEW_FELLOWS, "4", "2")
            assert (many.why, many.facts["layers"]) == (Reason.BAD_REQUEST, "4")
            assert absent.why is Reason.FELLOW_NOT_FOUND
            assert small.signals == poor.signals == []


async def test_a_longer_ring_refuses_the_fellow_that_cannot_be_in_one(tmp_path):
    fellows = [
        ScriptedFellow("a"),
        ScriptedFellow("b"),
        ScriptedFellow("old", capabilities=declare(serve_n_stage=None)),
    ]
    async with running_leader(tmp_path) as rig, joined(rig.address, *fellows):
        refusal = await refusal_of(rig.load(num_stages=3))

        assert refusal.why is Reason.CAPABILITY_MISSING
        assert refusal.facts["fellow"] == "old"
        assert (await rig.load_ready(num_stages=2)).state == serving_pb2.PLACEMENT_STATE_READY


async def test_a_damaged_servable_is_refused_with_its_reason(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, ScriptedFellow("kitchen")):
        (tmp_path / "servable_models" / MODEL / "base" / "model.safetensors").unlink()

        refusal = await refusal_of(rig.load())

        assert refusal.why is Reason.SERVABLE_CORRUPT
        assert "model.safetensors" in refusal.message


async def test_the_same_load_again_is_answered_and_another_one_conflicts(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, *pair()) as (attic, _):
        ready = await rig.load_ready(num_stages=2)

        again = await rig.load(num_stages=2)
        other = await refusal_of(rig.load(num_stages=1))

        assert (again.placement_id, again.state) == (ready.placement_id, ready.state)
        assert attic.kinds().count("load") == 1
        assert other.why is Reason.CONFLICT
        assert "ready over 2 stages" in other.message


async def test_two_loads_at_once_make_one_placement(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, ScriptedFellow("kitchen")) as (kitchen,):
        answers = await asyncio.gather(*(rig.load() for _ in range(5)))
        await rig.until_state("READY")

        assert len({answer.placement_id for answer in answers}) == 1
        assert kitchen.kinds().count("load") == 1


async def test_a_failed_stage_fails_the_load_and_gives_the_others_memory_back(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, *pair()) as (attic, kitchen):
        kitchen.load_failure = "tensor model.norm.weight has another hash"

        failed = await rig.load_ready(num_stages=2)

        assert failed.state == serving_pb2.PLACEMENT_STATE_FAILED
        assert failed.reason == "stage 1 on kitchen: tensor model.norm.weight has another hash"
        await until(lambda: "unload" in attic.kinds() and attic.held == {}, "the other stage is unloaded")
        kitchen.load_failure = ""
        assert (await rig.load_ready(num_stages=2)).state == serving_pb2.PLACEMENT_STATE_READY


async def test_a_fellow_that_dies_during_the_load_has_the_model_loaded_on_what_is_left(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, *pair()) as (attic, kitchen):
        kitchen.may_load.clear()
        before = await rig.load(num_stages=2)
        await until(lambda: bool(attic.held) and bool(kitchen.signals), "one is loaded, one is not")

        await kitchen.leave()

        ready = await rig.until_state("READY")
        assert ready.placement_id != before.placement_id
        assert [stage.fellow_name for stage in ready.stages] == ["attic"]
        assert list(attic.held) == [ready.placement_id]


async def test_a_load_that_takes_too_long_is_given_up_and_says_who_was_waited_for(tmp_path):
    async with (
        running_leader(tmp_path, load_timeout_s=0.2) as rig,
        joined(rig.address, ScriptedFellow("slow")) as (slow,),
    ):
        slow.may_load.clear()

        await rig.load()

        failed = await rig.until_state("FAILED")
        assert failed.reason == "stage 0 on slow: fellow slow did not answer load within 0.2 s"


async def test_auto_falls_back_to_the_relay_where_direct_does_not_answer(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, *pair()) as (attic, kitchen):
        attic.reaches_directly = False

        ready = await rig.load_ready(num_stages=2)

        assert ready.state == serving_pb2.PLACEMENT_STATE_READY, ready.reason
        assert [stage.route for stage in ready.stages] == [RELAY, DIRECT]
        assert ready.epoch == 2
        assert [(wire.epoch, wire.route, wire.previous_route) for wire in kitchen.wires()] == [
            (1, DIRECT, DIRECT),
            (2, DIRECT, RELAY),
        ]


async def test_links_that_come_up_and_carry_nothing_go_by_the_relay_too(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, *pair()) as (attic, _):
        attic.probe_failure = "no answer from stage 1"
        await rig.load(num_stages=2)
        await until(lambda: len(attic.wires()) == 2, "a second epoch")

        assert attic.wires()[1].route == RELAY
        failed = await rig.until_state("FAILED")
        assert "no position went round the ring: no answer from stage 1" in failed.reason


async def test_the_tunnel_never_tries_direct(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, *pair()) as (attic, kitchen):
        ready = await rig.load_ready(num_stages=2, transport=stage_pb2.TRANSPORT_TUNNEL)

        assert [stage.route for stage in ready.stages] == [RELAY, RELAY]
        assert not kitchen.signals[0].load.listen
        assert [wire.route for wire in attic.wires()] == [RELAY]


async def test_p2p_that_does_not_connect_fails_and_names_both_ends(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, *pair()) as (attic, kitchen):
        attic.reaches_directly = False

        failed = await rig.load_ready(num_stages=2, transport=stage_pb2.TRANSPORT_P2P)

        assert failed.state == serving_pb2.PLACEMENT_STATE_FAILED
        assert failed.reason == "attic does not reach kitchen at 10.0.0.1:4001: connection refused"
        await until(lambda: attic.held == {} and kitchen.held == {}, "memory is given back")


async def test_a_fellow_without_direct_links_is_reached_by_the_relay_and_noted(tmp_path):
    fellows = ScriptedFellow("attic", 3 * 10**9), ScriptedFellow("old", 2 * 10**9, declare(direct_link=None))
    async with running_leader(tmp_path) as rig, joined(rig.address, *fellows):
        ready = await rig.load_ready(num_stages=2)

        assert [stage.route for stage in ready.stages] == [RELAY, RELAY]
        assert list(ready.notes) == ["old lacks direct_link: its links go by the relay"]


async def test_unload_gives_memory_back_and_is_idempotent(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, *pair()) as (attic, kitchen):
        await rig.load_ready(num_stages=2)

        statuses = [await rig.serving.UnloadModel(serving_pb2.UnloadModelRequest(model_id=MODEL)) for _ in range(2)]

        assert [status.state for status in statuses] == [serving_pb2.PLACEMENT_STATE_UNLOADED] * 2
        assert attic.held == kitchen.held == {}
        assert len((await rig.serving.ListServing(serving_pb2.ListServingRequest())).models) == 0


async def test_unload_during_a_load_ends_it(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, ScriptedFellow("kitchen")) as (kitchen,):
        kitchen.may_load.clear()
        await rig.load()
        await until(lambda: bool(kitchen.signals), "the load arrives")

        unloaded = await rig.serving.UnloadModel(serving_pb2.UnloadModelRequest(model_id=MODEL))

        assert unloaded.state == serving_pb2.PLACEMENT_STATE_UNLOADED
        kitchen.may_load.set()  # its late answer changes nothing; the stage it now holds is unwanted
        await until(lambda: kitchen.held == {} and kitchen.kinds().count("unload") == 2, "it is told again")
        assert (await rig.get()).state == serving_pb2.PLACEMENT_STATE_UNLOADED


async def test_every_change_is_in_the_ledger_in_order(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, ScriptedFellow("kitchen")):
        ready = await rig.load_ready()
        await rig.serving.UnloadModel(serving_pb2.UnloadModelRequest(model_id=MODEL))

        log = await rig.leader.store.ledger.events(ready.placement_id)

        assert [event.what for event in log] == [
            "loading; stages: 1",
            "stage 0 loaded on kitchen",
            "wiring at epoch 1: local",
            "ready",
            "unloaded: tiny was unloaded on request",
        ]


async def test_a_context_too_short_to_chat_in_is_refused_and_one_too_long_is_noted(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, ScriptedFellow("kitchen")):
        refusal = await refusal_of(rig.load(context_tokens=10))
        shortest = await rig.serving.PlanModel(serving_pb2.LoadModelRequest(model_id=MODEL, context_tokens=64))
        ready = await rig.load_ready(context_tokens=99_999)

    assert (refusal.why, refusal.facts["field"]) == (Reason.BAD_REQUEST, "context_tokens")
    assert refusal.message.startswith("a context of 10 tokens is too short for a chat; ask for at least 64")
    assert (shortest.context_tokens, list(shortest.notes)) == (64, [])
    assert ready.context_tokens == 512
    assert list(ready.notes) == ["context cut from 99,999 to 512 tokens, the most this model takes"]


async def test_every_stage_of_a_ring_with_an_old_card_is_told_the_cap(tmp_path):
    attic, kitchen = ScriptedFellow("attic", 3 * 10**9), ScriptedFellow("kitchen", 2 * 10**9)
    kitchen.compute_capability = "7.5"
    async with running_leader(tmp_path) as rig, joined(rig.address, attic, kitchen):
        ready = await rig.load_ready(num_stages=2)

        specs = [fellow.signals[0].load.spec for fellow in (attic, kitchen)]
        assert [(spec.batch_max, spec.measure_step_costs) for spec in specs] == [(2, False), (2, False)]
        assert ready.batch_max == 2
        assert any("compute capability 8.0: kitchen (7.5)" in note for note in ready.notes)


async def test_the_operators_cap_and_wish_to_measure_reach_the_stage(tmp_path):
    async with (
        running_leader(tmp_path, batch_max=3, step_costs=True) as rig,
        joined(rig.address, ScriptedFellow("kitchen")) as (kitchen,),
    ):
        planned = await rig.serving.PlanModel(serving_pb2.LoadModelRequest(model_id=MODEL))
        await rig.load_ready()

        assert planned.batch_max == 3
        assert (kitchen.signals[0].load.spec.batch_max, kitchen.signals[0].load.spec.measure_step_costs) == (3, True)
