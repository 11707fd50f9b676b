"""A request that names an adapter: which ring answers it, with which adapter, and what is said when none does."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from silentswarm.core.v1 import capabilities_pb2, generation_pb2
from silentswarm.fellow.v1 import fellow_link_pb2
from silentswarm.leader.v1 import inference_pb2, models_pb2, serving_pb2
from swarm_core.errors import PermissionDenied, Reason
from swarm_core.manifest import FileEntry, manifest_to_json
from swarm_leader.flows.doors import check_fetch

from tests.integration.leader.rig import MODEL, WAIT_S, Rig, refusal_of, running_leader, text_of, until, write_servable
from tests.integration.leader.scripted_fellow import ScriptedFellow, declare, joined
from tests.unit.leader.model_facts import make_adapter, make_linear_manifest

Event = generation_pb2.GenerationEvent
ADAPTERS = ("ann/pirate", "poet")


def fellow(name: str = "kitchen", **changes: Any) -> ScriptedFellow:
    """A machine that holds adapters."""
    able = {"serve_adapters": capabilities_pb2.ServeAdapters(adapters_max=8), **changes}
    return ScriptedFellow(name, capabilities=declare(**able))


def write_adapters(rig: Rig) -> None:
    """A model of linear layers in place of the usual one, and two adapters of it, in the leader's catalog."""
    root = rig.leader.config.models_root
    base = replace(make_linear_manifest(layer_count=4, context_tokens_max=512), model_id=MODEL)
    write_servable(root, base, MODEL)
    files = {name: FileEntry(2, "0" * 64) for name in ("config.json", "adapter_config.json")}
    for model_id in ADAPTERS:
        adapter = replace(make_adapter(model_id, base).manifest, files=files)
        write_servable(root, adapter, model_id)
        folder = root / model_id.replace("/", "---")
        (folder / "adapter_config.json").write_text("{}")
        (folder / "servable.json").write_bytes(manifest_to_json(adapter))


def ask(rig: Rig, model_id: str, request_id: str = "", **generation: Any) -> Any:
    """Ask a model for a reply."""
    wanted = generation_pb2.Generation(**{"prompt": "Hello", **generation})
    request = inference_pb2.GenerateRequest(model_id=model_id, generation=wanted, request_id=request_id)
    return rig.inference.Generate(request, timeout=WAIT_S)


async def performance_of(rig: Rig, model_id: str) -> serving_pb2.ModelPerformance:
    """The last minutes of a model."""
    return await rig.serving.GetPerformance(serving_pb2.GetPerformanceRequest(model_id=model_id))


async def status_of(rig: Rig, model_id: str) -> serving_pb2.ModelStatus:
    """Where a model stands."""
    return await rig.serving.GetModelStatus(serving_pb2.GetModelStatusRequest(model_id=model_id))


async def states_of(rig: Rig) -> dict[str, str]:
    """The states of the catalog's list."""
    listed = await rig.models.ListModels(models_pb2.ListModelsRequest())
    return {model.model_id: model.state for model in listed.models}


async def test_a_request_for_an_adapter_runs_in_its_bases_ring_with_it_and_others_without(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, fellow()) as (kitchen,):
        write_adapters(rig)
        ready = await rig.load_ready(adapters=ADAPTERS)

        for model_id in (MODEL, *ADAPTERS):
            assert text_of([event async for event in ask(rig, model_id)]) == "Hi there"

        assert [request.generation.adapter for request in kitchen.requests] == ["", *ADAPTERS]
        assert {request.placement_id for request in kitchen.requests} == {ready.placement_id}


async def test_an_adapter_that_a_client_sets_itself_is_not_believed(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, fellow()) as (kitchen,):
        write_adapters(rig)
        await rig.load_ready(adapters=ADAPTERS)

        for model_id in (MODEL, "poet"):
            _ = [event async for event in ask(rig, model_id, adapter="ann/pirate")]

        assert [request.generation.adapter for request in kitchen.requests] == ["", "poet"]


async def test_an_adapter_is_as_ready_as_the_base_that_holds_it(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, fellow()):
        write_adapters(rig)
        before = await states_of(rig)
        ready = await rig.load_ready(adapters=["poet"])
        during, status = await states_of(rig), await status_of(rig, "poet")
        watched = [one async for one in rig.serving.WatchModel(serving_pb2.WatchModelRequest(model_id="poet"))]
        await rig.serving.UnloadModel(serving_pb2.UnloadModelRequest(model_id=MODEL))
        after = await states_of(rig)

    nothing = dict.fromkeys((MODEL, *ADAPTERS), "unloaded")
    assert (before, after) == (nothing, nothing)
    assert during == {**nothing, MODEL: "ready", "poet": "ready"}
    assert (status.model_id, status.placement_id, list(status.adapters)) == ("poet", ready.placement_id, ["poet"])
    assert [one.state for one in watched] == [serving_pb2.PLACEMENT_STATE_READY]


async def test_an_adapter_that_nothing_holds_is_refused_with_the_way_to_load_it(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, fellow()) as (kitchen,):
        write_adapters(rig)
        unloaded = await refusal_of(ask(rig, "poet"))
        await rig.load_ready(adapters=["ann/pirate"])
        without = await refusal_of(ask(rig, "poet"))
        unknown = await refusal_of(ask(rig, "nobody/nothing"))

        assert kitchen.requests == []
    assert (unloaded.why, without.why) == (Reason.MODEL_NOT_READY, Reason.MODEL_NOT_READY)
    assert unloaded.message.endswith(
        f"it is an adapter of {MODEL}, which is unloaded; load it with: swarm model-load {MODEL} --adapter poet"
    )
    assert without.message.endswith(
        f"which is ready without it; load it with: swarm model-unload {MODEL}, then "
        f"swarm model-load {MODEL} --adapter ann/pirate --adapter poet"
    )
    assert unknown.why is Reason.MODEL_NOT_FOUND


async def test_a_request_for_an_adapter_wakes_the_idle_base_with_every_adapter_it_had(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, fellow()) as (kitchen,):
        write_adapters(rig)
        await rig.load_ready(adapters=ADAPTERS)
        kitchen.report(fellow_link_pb2.STAGE_EVENT_KIND_IDLE_UNLOADED, "idle for a second")
        await rig.until_state("IDLE")

        events = [event async for event in ask(rig, "poet")]

        assert events[0].event.queued.reason == "the model was idle and loads again"
        assert text_of(events) == "Hi there"
        assert kitchen.requests[-1].generation.adapter == "poet"
        assert list((await rig.get()).adapters) == list(ADAPTERS)


async def test_an_idle_base_wakes_without_an_adapter_that_left_the_catalog(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, fellow()) as (kitchen,):
        write_adapters(rig)
        await rig.load_ready(adapters=ADAPTERS)
        kitchen.report(fellow_link_pb2.STAGE_EVENT_KIND_IDLE_UNLOADED, "idle for a second")
        await rig.until_state("IDLE")
        (rig.leader.config.models_root / "poet" / "servable.json").unlink()

        texts = [text_of([event async for event in ask(rig, one)]) for one in (MODEL, "ann/pirate")]
        gone = await refusal_of(ask(rig, "poet"))

        assert texts == ["Hi there", "Hi there"]
        assert list((await rig.get()).adapters) == ["ann/pirate"]
        assert gone.why in (Reason.MODEL_NOT_FOUND, Reason.SERVABLE_CORRUPT)


async def test_adapters_and_their_base_wait_for_the_same_places(tmp_path):
    """They run in one ring: what one takes, the others cannot have."""
    few = fellow(serve_concurrent=capabilities_pb2.ServeConcurrent(in_flight_max=1))
    few.replies_with = None
    async with running_leader(tmp_path) as rig, joined(rig.address, few):
        write_adapters(rig)
        await rig.load_ready(adapters=ADAPTERS)
        first = asyncio.create_task(anext(aiter(ask(rig, "poet", request_id="first"))))
        await until(lambda: bool(few.requests), "the first request arrives")
        second = ask(rig, "ann/pirate", request_id="second")

        told = await anext(aiter(second))
        status = await status_of(rig, MODEL)
        first.cancel()

        assert told.event.queued.position == 1
        assert (status.running, status.waiting) == (1, 1)
        await until(lambda: len(few.requests) == 2, "the second one has the place of the first")
        assert few.requests[1].generation.adapter == "ann/pirate"
        few.say("second", 1, started=Event.Started(prompt_tokens=3))
        few.say("second", 2, done=Event.Done())
        assert [answer.event.WhichOneof("event") async for answer in second][-1] == "done"


async def test_a_reply_with_an_adapter_counts_for_the_adapter_and_for_its_ring(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, fellow()):
        write_adapters(rig)
        await rig.load_ready(adapters=ADAPTERS)
        for model_id in (MODEL, "poet", "poet"):
            _ = [event async for event in ask(rig, model_id)]

        figures = {model_id: await performance_of(rig, model_id) for model_id in (MODEL, *ADAPTERS)}
        series = {
            sample.labels["model_name"]: sample.value
            for metric in rig.leader.metrics.collect()
            for sample in metric.samples
            if sample.name == "silentswarm_generation_tokens_total"
        }

    assert {model_id: one.completed for model_id, one in figures.items()} == {MODEL: 3, "ann/pirate": 0, "poet": 2}
    assert {len(one.stages) for one in figures.values()} == {1}
    assert series == {MODEL: 2, "poet": 4}


async def test_unloading_an_adapter_that_a_base_holds_names_the_base(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, fellow()) as (kitchen,):
        write_adapters(rig)
        await rig.load_ready(adapters=["poet"])

        held = await refusal_of(rig.serving.UnloadModel(serving_pb2.UnloadModelRequest(model_id="poet")))
        other = await rig.serving.UnloadModel(serving_pb2.UnloadModelRequest(model_id="ann/pirate"))

        assert held.why is Reason.CONFLICT
        assert held.message.endswith(f"swarm model-unload {MODEL}")
        assert other.state == serving_pb2.PLACEMENT_STATE_UNSPECIFIED
        assert "unload" not in kitchen.kinds()


async def test_a_machine_gets_the_adapters_it_holds_and_no_others(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, fellow()) as (kitchen,):
        write_adapters(rig)
        await rig.load_ready(adapters=["poet"])
        board, fellow_id = rig.leader.board, kitchen.registered.fellow_id

        for model_id in (MODEL, "poet"):
            check_fetch(board, fellow_id, model_id)
        with pytest.raises(PermissionDenied):
            check_fetch(board, fellow_id, "ann/pirate")
