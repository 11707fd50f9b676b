"""Loads that follow or meet one another: what memory a plan counts on, who must wait, what a ring may admit."""

import asyncio

from silentswarm.leader.v1 import serving_pb2
from swarm_core.errors import ModelNotReady, Reason
from swarm_leader.domain.planning.planner import PlanRequest
from swarm_leader.domain.records import PlacementState

from tests.integration.leader.rig import MODEL, refusal_of, running_leader, until, write_servable
from tests.integration.leader.scripted_fellow import ScriptedFellow, declare, joined
from tests.unit.leader.model_facts import make_manifest

OTHER = "other"
MEGABYTE = 10**6
UNLOAD = serving_pb2.UnloadModelRequest(model_id=MODEL)


def kitchen_of(models_max: int, free_bytes: int = 4 * 10**9) -> ScriptedFellow:
    """A fellow that holds this many models."""
    serve = declare().serve
    serve.loaded_models_max = models_max
    return ScriptedFellow("kitchen", free_bytes, declare(serve=serve))


def add_other(rig) -> None:
    """A second model in the catalog."""
    write_servable(rig.leader.config.models_root, make_manifest(context_tokens_max=512), OTHER)


async def free_bytes(rig, model_id: str = OTHER) -> int:
    """What a plan counts on now."""
    planned = await rig.serving.PlanModel(serving_pb2.LoadModelRequest(model_id=model_id))
    return planned.stages[0].free_bytes


async def fill(rig, kitchen: ScriptedFellow, free: int, stage_bytes: int) -> None:
    """Load the model, and have the figures that show it arrive; then no more come."""
    kitchen.stage_bytes = stage_bytes
    await rig.load_ready()
    kitchen.free_bytes = free
    fellow = rig.leader.registry.find("kitchen")
    await until(lambda: fellow.best_device.memory_free_bytes == free, "the figures arrive")
    kitchen.beats = False


async def test_what_a_stage_frees_counts_before_the_next_heartbeat_says_so(tmp_path):
    kitchen = kitchen_of(models_max=2)
    async with running_leader(tmp_path, lease_s=20.0) as rig, joined(rig.address, kitchen):
        add_other(rig)
        await fill(rig, kitchen, free=50 * MEGABYTE, stage_bytes=900 * MEGABYTE)
        assert (await refusal_of(rig.load(model_id=OTHER))).why is Reason.NOT_ENOUGH_MEMORY

        await rig.serving.UnloadModel(UNLOAD)

        assert await free_bytes(rig) == 950 * MEGABYTE
        assert (await rig.load(model_id=OTHER)).state == serving_pb2.PLACEMENT_STATE_LOADING


async def test_what_was_freed_counts_until_the_next_heartbeat_and_no_longer(tmp_path):
    kitchen = kitchen_of(models_max=2)
    async with running_leader(tmp_path, lease_s=20.0) as rig, joined(rig.address, kitchen):
        add_other(rig)
        await fill(rig, kitchen, free=500 * MEGABYTE, stage_bytes=900 * MEGABYTE)
        await rig.serving.UnloadModel(UNLOAD)

        kitchen.free_bytes = 700 * MEGABYTE
        kitchen.beat()
        fellow = rig.leader.registry.find("kitchen")
        await until(lambda: fellow.best_device.memory_free_bytes == 700 * MEGABYTE, "the figures arrive")

        assert await free_bytes(rig) == 700 * MEGABYTE


async def test_no_plan_counts_on_more_than_the_device_has(tmp_path):
    kitchen = kitchen_of(models_max=2)
    kitchen.total_bytes = 600 * MEGABYTE
    async with running_leader(tmp_path, lease_s=20.0) as rig, joined(rig.address, kitchen):
        add_other(rig)
        await fill(rig, kitchen, free=50 * MEGABYTE, stage_bytes=900 * MEGABYTE)

        await rig.serving.UnloadModel(UNLOAD)

        assert await free_bytes(rig) == 600 * MEGABYTE


async def test_memory_promised_to_a_load_is_not_promised_twice(tmp_path):
    kitchen = kitchen_of(models_max=2, free_bytes=500 * MEGABYTE)
    kitchen.may_load.clear()
    async with running_leader(tmp_path) as rig, joined(rig.address, kitchen):
        add_other(rig)

        first = await rig.load()
        refusal = await refusal_of(rig.load(model_id=OTHER))

        taken = sum(getattr(first.stages[0], part) for part in ("weight_bytes", "kv_bytes", "working_bytes"))
        assert refusal.why is Reason.NOT_ENOUGH_MEMORY
        assert refusal.facts["available_bytes"] == str(500 * MEGABYTE - taken)

        kitchen.may_load.set()
        await rig.until_state("READY")
        fellow = rig.leader.registry.find("kitchen")
        await until(lambda: any(held.status for held in fellow.stages.values()), "a heartbeat shows the stage")
        assert await free_bytes(rig) == 500 * MEGABYTE


async def test_of_two_loads_at_once_the_second_is_refused_and_told_what_loads(tmp_path):
    kitchen = kitchen_of(models_max=1)
    kitchen.may_load.clear()
    async with running_leader(tmp_path) as rig, joined(rig.address, kitchen):
        add_other(rig)

        loads = [rig.load(), rig.load(model_id=OTHER)]
        answers = await asyncio.gather(*loads, return_exceptions=True)

        (loading,) = [answer for answer in answers if not isinstance(answer, Exception)]
        (refused,) = [answer for answer in answers if isinstance(answer, Exception)]
        refusal = await refusal_of(_raise(refused))
        assert (refusal.why, refusal.facts["loading"]) == (Reason.CONFLICT, loading.model_id)
        assert f"fellow kitchen is loading {loading.model_id}" in refusal.message
        waiting = OTHER if loading.model_id == MODEL else MODEL
        assert (await refusal_of(rig.load(model_id=waiting, fellow_ids=["kitchen"]))).why is Reason.CONFLICT


async def test_a_plan_says_which_model_ends_to_make_room(tmp_path):
    kitchen = kitchen_of(models_max=1)
    async with running_leader(tmp_path) as rig, joined(rig.address, kitchen):
        add_other(rig)
        first = await rig.serving.PlanModel(serving_pb2.LoadModelRequest(model_id=OTHER))
        await rig.load_ready()

        planned = await rig.serving.PlanModel(serving_pb2.LoadModelRequest(model_id=OTHER))
        again = await rig.serving.PlanModel(serving_pb2.LoadModelRequest(model_id=MODEL))

        assert not [note for note in (*first.notes, *again.notes) if "makes room" in note]
        assert f"kitchen makes room: {MODEL} ends (SWARM_MAX_LOADED_MODELS)" in planned.notes


async def test_a_plan_beside_what_is_served_ends_nothing(tmp_path):
    kitchen = kitchen_of(models_max=2)
    async with running_leader(tmp_path) as rig, joined(rig.address, kitchen):
        add_other(rig)
        await rig.load_ready()

        planned = await rig.serving.PlanModel(serving_pb2.LoadModelRequest(model_id=OTHER))

        assert not [note for note in planned.notes if "makes room" in note]


async def test_a_load_that_leaves_the_choice_goes_where_nothing_loads(tmp_path):
    kitchen, attic = kitchen_of(models_max=1), ScriptedFellow("attic", 2 * 10**9)
    kitchen.may_load.clear()
    async with running_leader(tmp_path) as rig, joined(rig.address, kitchen, attic):
        add_other(rig)
        first = await rig.load()

        second = await rig.load(model_id=OTHER)

        assert [status.stages[0].fellow_name for status in (first, second)] == ["kitchen", "attic"]


async def test_a_ring_admits_by_what_its_tightest_stage_measured(tmp_path):
    attic, kitchen = ScriptedFellow("attic", 3 * 10**9), ScriptedFellow("kitchen", 2 * 10**9)
    kitchen.kv_tokens_measured = 300
    async with running_leader(tmp_path) as rig, joined(rig.address, attic, kitchen):
        ready = await rig.load_ready(num_stages=2)

        assert [wire.kv_tokens for wire in (*attic.wires(), *kitchen.wires())] == [300, 300]
        assert (await rig.leader.store.ledger.latest(MODEL)).kv_tokens == 300
        log = await rig.leader.store.ledger.events(ready.placement_id)
        assert any(event.what.startswith("kitchen has room for 300 tokens") for event in log)


async def test_a_stage_without_room_for_one_conversation_fails_the_load_with_both_numbers(tmp_path):
    attic, kitchen = ScriptedFellow("attic", 3 * 10**9), ScriptedFellow("kitchen", 2 * 10**9)
    kitchen.kv_tokens_measured = 0
    async with running_leader(tmp_path) as rig, joined(rig.address, attic, kitchen):
        failed = await rig.load_ready(num_stages=2)

        assert failed.state == serving_pb2.PLACEMENT_STATE_FAILED
        assert failed.reason.startswith("fellow kitchen has room for 0 tokens beside its stage, fewer than the 256")
        await until(lambda: attic.held == kitchen.held == {}, "memory is given back")


async def test_a_fellow_that_measures_nothing_is_taken_as_planned(tmp_path):
    old = ScriptedFellow("old", capabilities=declare(serve_kv_budget=None))
    old.kv_tokens_measured = 0
    async with running_leader(tmp_path) as rig, joined(rig.address, old):
        assert (await rig.load_ready()).state == serving_pb2.PLACEMENT_STATE_READY


async def test_an_unload_goes_on_when_its_caller_is_cancelled(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, ScriptedFellow("kitchen")) as (kitchen,):
        kitchen.may_load.clear()
        await rig.load()
        await until(lambda: bool(kitchen.signals), "the load arrives")

        await _cancelled(rig.leader.loading.unload(MODEL))

        await rig.until_state("UNLOADED")
        await until(lambda: "unload" in kitchen.kinds(), "memory is given back")
        assert rig.leader.board.get(MODEL).task is None


async def test_a_load_that_was_recorded_goes_on_when_its_caller_is_cancelled(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, ScriptedFellow("kitchen")):
        await _cancelled(rig.leader.loading.load(MODEL, PlanRequest()))

        await until(lambda: rig.leader.board.get(MODEL) is not None, "the load is recorded")
        assert (await rig.until_state("READY")).epoch == 1


async def test_an_unload_during_the_planning_of_a_load_ends_it(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, ScriptedFellow("kitchen")):
        async with rig.leader.board.lock(MODEL):
            loading = asyncio.create_task(rig.leader.loading.load(MODEL, PlanRequest()))
            await until(lambda: _waiters(rig) == 1, "the load waits")
            unloading = asyncio.create_task(rig.leader.loading.unload(MODEL))
            await until(lambda: _waiters(rig) == 2, "the unload waits")

        await asyncio.gather(loading, unloading)

        assert rig.leader.board.get(MODEL).state is PlacementState.UNLOADED


async def test_a_wake_does_not_overtake_an_unload(tmp_path):
    kitchen = ScriptedFellow("kitchen")
    async with running_leader(tmp_path) as rig, joined(rig.address, kitchen):
        await rig.load_ready()
        idle = rig.leader.board.get(MODEL)
        await rig.leader.ending.end(idle, PlacementState.IDLE, ModelNotReady("no request for 900 s"))
        async with rig.leader.board.lock(MODEL):
            unloading = asyncio.create_task(rig.leader.loading.unload(MODEL))
            await until(lambda: _waiters(rig) == 1, "the unload waits")
            reply = asyncio.create_task(refusal_of(rig.generate()))
            await until(lambda: _waiters(rig) == 2, "the wake waits")

        await unloading
        refusal = await reply

        assert refusal.why is Reason.MODEL_NOT_READY
        assert "unloaded on request" in refusal.message
        assert kitchen.kinds().count("load") == 1


def _waiters(rig) -> int:
    """Tasks that wait for the model's lock."""
    return len(rig.leader.board.lock(MODEL)._waiters or ())


async def _raise(error: Exception) -> None:
    raise error


async def _cancelled(work) -> None:
    """Begin something and cancel whoever asked for it."""
    caller = asyncio.create_task(work)
    await asyncio.sleep(0)
    caller.cancel()
    await asyncio.gather(caller, return_exceptions=True)
