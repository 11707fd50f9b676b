"""Speeds from fellows to plans and statuses: as registered, as beaten, as measured by replies."""

from typing import Any

from silentswarm.core.v1 import generation_pb2, hardware_pb2, stage_pb2, telemetry_pb2
from silentswarm.fellow.v1 import fellow_link_pb2
from silentswarm.leader.v1 import serving_pb2

from tests.integration.leader.rig import MODEL, running_leader, until, write_servable
from tests.integration.leader.scripted_fellow import ScriptedFellow, joined
from tests.unit.leader.model_facts import MEGABYTE, make_manifest

Event = generation_pb2.GenerationEvent


class MeasuredFellow(ScriptedFellow):
    """A scripted fellow that says how fast it is and how far."""

    def __init__(self, name: str, free_bytes: int, reads: float | None, away_ms: float | None = None) -> None:
        super().__init__(name, free_bytes)
        self.reads, self.flops, self.away_ms = reads, 2e11, away_ms
        self.later_away_ms: float | None = None
        self.link_round_trip_ms: float | None = None

    def _device(self) -> hardware_pb2.Device:
        device = super()._device()
        if self.reads is not None:
            device.read_bytes_per_s, device.float32_flops = self.reads, self.flops
        return device

    def _register(self) -> fellow_link_pb2.Register:
        register = super()._register()
        if self.away_ms is not None:
            register.hardware.leader_round_trip_ms = self.away_ms
            register.hardware.leader_down_bytes_per_s = 1e7
        return register

    def beat(self) -> None:
        for held in self.held.values():
            if self.link_round_trip_ms is not None:
                held.status.link_round_trip_ms, held.status.route = self.link_round_trip_ms, stage_pb2.ROUTE_DIRECT
        beat = fellow_link_pb2.Heartbeat(
            sequence=next(self._sequences),
            devices=self._devices(),
            stages=[held.status for held in self.held.values()],
            telemetry=telemetry_pb2.NodeTelemetry(leader_round_trip_ms=self.later_away_ms),
        )
        self._up.put_nowait(fellow_link_pb2.ConnectRequest(heartbeat=beat))


def write_large(rig: Any) -> None:
    """1.6 GB in F32: more than the usual tiny model, so that its reading counts."""
    large = make_manifest(layer_count=8, layer_elements=50 * MEGABYTE, context_tokens_max=512)
    write_servable(rig.leader.config.models_root, large, "large")


async def plan_of(rig: Any, **request: Any) -> serving_pb2.ModelStatus:
    """What a load of the large model would do."""
    return await rig.serving.PlanModel(serving_pb2.LoadModelRequest(**{"model_id": "large", **request}))


async def test_a_plan_takes_the_faster_fellow_and_says_who_is_left_out_with_the_numbers(tmp_path):
    attic, desk = MeasuredFellow("attic", 8 * 10**9, 5e9), MeasuredFellow("desk", 4 * 10**9, 50e9)
    async with running_leader(tmp_path) as rig, joined(rig.address, attic, desk):
        write_large(rig)
        planned = await plan_of(rig)
        desk.reads = None
        beaten = rig.leader.registry.find("desk").hardware
        await until(lambda: not beaten.devices[0].HasField("read_bytes_per_s"), "it says it no longer knows")
        unknown = await plan_of(rig)

    assert [stage.fellow_name for stage in planned.stages] == ["desk"]
    assert [one.fellow_name for one in planned.left_out] == ["attic"]
    assert planned.left_out[0].reason.startswith("3.1 tokens/s with it, 31.2 without; it reads 5.0 GB/s")
    assert f"attic left out: {planned.left_out[0].reason}" in planned.notes
    assert planned.predicted_first_token_ms > 0
    assert not planned.stages[0].HasField("predicted_link_ms")
    assert [stage.fellow_name for stage in unknown.stages] == ["attic"]


async def test_the_way_to_the_leader_counts_as_registered_then_as_beaten_and_is_not_stored(tmp_path):
    near, far = MeasuredFellow("near", 4 * 10**9, 1e10, 10.0), MeasuredFellow("far", 4 * 10**9, 1e10, 100.0)
    relayed: dict[str, Any] = {"fellow_ids": ["near", "far"], "transport": stage_pb2.TRANSPORT_TUNNEL}
    async with running_leader(tmp_path) as rig, joined(rig.address, near, far):
        write_large(rig)
        first = await plan_of(rig, **relayed)
        far.later_away_ms = 200.0
        beaten = rig.leader.registry.find("far").hardware
        await until(lambda: beaten.leader_round_trip_ms == 200.0, "the newer figure came")
        later = await plan_of(rig, **relayed)
        stored = [hardware_pb2.Hardware.FromString(one.hardware) for one in await rig.leader.store.fellows.all()]

    assert [round(stage.predicted_link_ms) for stage in first.stages] == [round(1.03 + 54.5)] * 2
    assert [round(stage.predicted_link_ms) for stage in later.stages] == [round(1.03 + 104.5)] * 2
    assert len(stored) == 2
    assert not any(one.HasField("leader_round_trip_ms") or one.HasField("leader_down_bytes_per_s") for one in stored)
    assert all(one.devices[0].read_bytes_per_s == 1e10 for one in stored)


async def test_what_a_ring_measured_between_two_fellows_counts_in_later_plans(tmp_path):
    fellows = [MeasuredFellow(name, 4 * 10**9, 1e10) for name in ("attic", "desk")]
    named = {"fellow_ids": ["attic", "desk"]}
    async with running_leader(tmp_path) as rig, joined(rig.address, *fellows):
        write_large(rig)
        before = await plan_of(rig, **named)
        for fellow in fellows:
            fellow.link_round_trip_ms = 41.0
        ready = await rig.load_ready(num_stages=2)
        attic = rig.leader.registry.find("attic")
        await until(lambda: bool(rig.leader.registry.link_times.of(attic.fellow_id)), "beats say how far it is")
        live = await rig.get()
        await rig.serving.UnloadModel(serving_pb2.UnloadModelRequest(model_id=MODEL))
        after = await plan_of(rig, **named)

    assert ready.state == serving_pb2.PLACEMENT_STATE_READY
    assert live.stages[0].measured_link_ms == 20.5
    assert round(before.stages[0].predicted_link_ms, 2) == 1.03
    assert round(after.stages[0].predicted_link_ms, 2) == round(1.03 + 20.0, 2)
    assert after.predicted_tokens_per_s < before.predicted_tokens_per_s


async def test_a_status_shows_what_replies_took_beside_what_was_predicted(tmp_path):
    fellows = [MeasuredFellow(name, 4 * 10**9, 1e10) for name in ("attic", "desk")]
    for fellow in fellows:
        fellow.replies_with = None
    timing = generation_pb2.Timing(prefill_ms=90.0, stage_ms=[8.0, 6.0], wait_ms=1.0, link_ms=4.0, sample_ms=1.0)
    done = Event.Done(
        finish_reason=generation_pb2.FINISH_REASON_LENGTH, prompt_tokens=3, completion_tokens=3, timing=timing
    )
    async with running_leader(tmp_path) as rig, joined(rig.address, *fellows):
        ready = await rig.load_ready(num_stages=2)
        first = next(fellow for fellow in fellows if fellow.name == ready.stages[0].fellow_name)
        call = rig.generate(request_id="r")
        await until(lambda: bool(first.requests), "it arrives")
        first.say("r", 1, started=Event.Started(prompt_tokens=3))
        first.say("r", 2, tokens=Event.TokenBatch(text="abc", ids=[1, 2, 3]))
        first.say("r", 3, done=done)
        _ = [event async for event in call]
        served = await rig.get()
        await rig.serving.UnloadModel(serving_pb2.UnloadModelRequest(model_id=MODEL))
        ended = await rig.get()

    assert ready.predicted_tokens_per_s > 0
    assert not ready.HasField("measured_tokens_per_s")
    assert served.measured_tokens_per_s == 1000 / 20.0
    assert [stage.measured_ms for stage in served.stages] == [8.0, 6.0]
    assert served.measured_link_ms == 4.0
    assert served.measured_first_token_ms > 0
    assert [round(stage.predicted_link_ms, 2) for stage in served.stages] == [1.03, 1.03]
    assert served.predicted_first_token_ms == ready.predicted_first_token_ms > 0
    assert not ended.HasField("measured_tokens_per_s")
