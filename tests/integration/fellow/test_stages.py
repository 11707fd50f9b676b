"""Stages over their whole life, with real processes: load, evict, idle, crash, stop."""

import itertools
import os
import signal
from pathlib import Path

import pytest
from silentswarm.core.v1 import reason_pb2, stage_pb2
from silentswarm.fellow.v1 import fellow_link_pb2 as link_pb2

from tests.integration.fellow.running_fellow import running_fellow, stage_pids
from tests.integration.fellow.scripted_leader import ScriptedLeader, TinyModel, eventually

ONE, TWO = TinyModel("tiny/one"), TinyModel("tiny/two")


async def test_a_loaded_stage_says_where_it_listens_and_what_it_holds(tmp_path: Path):
    leader = ScriptedLeader(ONE)
    await leader.start()
    async with running_fellow(leader.address, tmp_path):
        fellow = await leader.connection()
        done = await fellow.load(ONE.spec("p1"), listen=True)
        again = await fellow.load(ONE.spec("p1"), listen=True)
        steps = [progress.step for progress in fellow.progress]

    held = [name for name in ONE.tensors if name.startswith(("model.layers.0", "model.layers.1", "model.embed"))]
    assert done.weight_bytes == sum(len(ONE.tensors[name]) for name in held)
    assert list(done.ring_addresses) == ["127.0.0.1:4242"] and done.kv_tokens_measured == 2
    assert [step for step, _ in itertools.groupby(steps)] == ["fetch", "start", "build"]
    assert again.weight_bytes == done.weight_bytes and again.fetched_bytes == 0


async def test_a_second_model_evicts_the_oldest_before_it_starts(tmp_path: Path):
    leader = ScriptedLeader(ONE, TWO)
    await leader.start()
    async with running_fellow(leader.address, tmp_path):
        fellow = await leader.connection()
        await fellow.load(ONE.spec("p1"))
        await fellow.load(TWO.spec("p2"))
        pids = stage_pids()
        await eventually(lambda: fellow.events, "the eviction was told")
        await eventually(lambda: [s.spec.placement_id for s in fellow.stages()] == ["p2"], "only the new one is held")

    assert len(pids) == 1
    assert [(event.spec.placement_id, event.kind) for event in fellow.events] == [
        ("p1", link_pb2.STAGE_EVENT_KIND_EVICTED)
    ]


async def test_two_models_stay_when_two_are_allowed(tmp_path: Path):
    leader = ScriptedLeader(ONE, TWO)
    await leader.start()
    async with running_fellow(leader.address, tmp_path, SWARM_MAX_LOADED_MODELS="2"):
        fellow = await leader.connection()
        await fellow.load(ONE.spec("p1"))
        await fellow.load(TWO.spec("p2"))
        await eventually(lambda: len(fellow.stages()) == 2, "both are held")
        stopped = await fellow.ask(stop=link_pb2.StopSignal())
        pids_after_stop = stage_pids()
        pong = await fellow.ask(ping=link_pb2.PingSignal())

    assert stopped.HasField("acknowledged") and pids_after_stop == []
    assert pong.HasField("acknowledged") and len(leader.connections) == 1
    assert not fellow.events


async def test_an_idle_model_is_unloaded_but_never_during_a_generation(tmp_path: Path):
    leader = ScriptedLeader(ONE)
    await leader.start()
    async with running_fellow(leader.address, tmp_path, SWARM_MODEL_IDLE_UNLOAD_S="1.0"):
        fellow, stream = await leader.connection(), await leader.stream()
        await fellow.load(ONE.spec("p1"))
        stream.request("r1", "forever")
        await eventually(lambda: len(stream.events.get("r1", [])) > 100, "it generated for longer than the idle limit")
        assert len(stage_pids()) == 1 and not fellow.events
        stream.cancel("r1")
        await eventually(lambda: fellow.events, "the idle stage was unloaded")
        await eventually(lambda: not fellow.stages(), "heartbeats no longer carry it")
        assert stage_pids() == []

    assert fellow.events[0].kind == link_pb2.STAGE_EVENT_KIND_IDLE_UNLOADED


async def test_a_killed_stage_is_an_event_with_the_signal_and_the_fellow_loads_again(tmp_path: Path):
    leader = ScriptedLeader(ONE)
    await leader.start()
    async with running_fellow(leader.address, tmp_path):
        fellow = await leader.connection()
        await fellow.load(ONE.spec("p1"))
        os.kill(stage_pids()[0], signal.SIGKILL)
        await eventually(lambda: fellow.events, "the crash was told")
        await fellow.load(ONE.spec("p2"))

    assert fellow.events[0].kind == link_pb2.STAGE_EVENT_KIND_CRASHED
    assert "SIGKILL" in fellow.events[0].message and fellow.events[0].spec.placement_id == "p1"


async def test_a_stage_that_hangs_counts_as_crashed_and_is_ended(tmp_path: Path):
    leader = ScriptedLeader(ONE)
    await leader.start()
    async with running_fellow(leader.address, tmp_path, SWARM_STAGE_SILENT_S="1"):
        fellow = await leader.connection()
        await fellow.load(ONE.spec("p1"))
        pid = stage_pids()[0]
        os.kill(pid, signal.SIGSTOP)
        await eventually(lambda: fellow.events, "the hanging stage was told")
        await eventually(lambda: stage_pids() == [], "its process was killed, which a stopped one cannot survive")
        await eventually(lambda: not fellow.stages(), "heartbeats no longer carry it")

    assert [event.kind for event in fellow.events] == [link_pb2.STAGE_EVENT_KIND_CRASHED]
    assert "did not answer for 1 s" in fellow.events[0].message


async def test_a_broken_link_is_told_and_the_stage_lives(tmp_path: Path):
    leader = ScriptedLeader(ONE)
    await leader.start()
    async with running_fellow(leader.address, tmp_path):
        fellow, stream = await leader.connection(), await leader.stream()
        await fellow.load(ONE.spec("p1"))
        stream.request("r1", "break-link")
        await eventually(lambda: fellow.events, "the broken link was told")
        assert len(stage_pids()) == 1

    assert fellow.events[0].kind == link_pb2.STAGE_EVENT_KIND_LINK_BROKEN


async def test_a_broken_engine_counts_as_a_crash_and_gives_its_memory_back(tmp_path: Path):
    leader = ScriptedLeader(ONE)
    await leader.start()
    async with running_fellow(leader.address, tmp_path):
        fellow, stream = await leader.connection(), await leader.stream()
        await fellow.load(ONE.spec("p1"))
        stream.request("r1", "break-engine")
        end = (await stream.reply("r1"))[-1]
        await eventually(lambda: stage_pids() == [], "the process ended")

    assert fellow.events[0].kind == link_pb2.STAGE_EVENT_KIND_CRASHED
    assert end.failed.reason == reason_pb2.REASON_STAGE_FAILED


async def test_a_stage_that_dies_in_its_load_fails_the_load_with_its_last_words(tmp_path: Path):
    leader = ScriptedLeader(ONE)
    await leader.start()
    async with running_fellow(leader.address, tmp_path, habits="dies-in-load"):
        fellow = await leader.connection()
        result = await fellow.ask(load=link_pb2.LoadSignal(spec=ONE.spec("p1")))

    assert result.failure.reason == reason_pb2.REASON_STAGE_FAILED  # what a fellow with more memory may not meet
    assert "SIGKILL" in result.failure.message and "layer 3" in result.failure.message
    assert not fellow.events


async def test_a_stage_that_freezes_in_its_load_fails_the_load_long_before_its_time(tmp_path: Path):
    leader = ScriptedLeader(ONE)
    await leader.start()
    async with running_fellow(leader.address, tmp_path, habits="hangs-in-load"):
        fellow = await leader.connection()
        loading = fellow.send(load=link_pb2.LoadSignal(spec=ONE.spec("p1")))
        await eventually(lambda: any(p.step == "build" for p in fellow.progress), "the stage builds")
        os.kill(stage_pids()[0], signal.SIGSTOP)
        result = await fellow.result(loading)
        await eventually(lambda: stage_pids() == [], "its process was killed")

    assert result.failure.reason == reason_pb2.REASON_STAGE_FAILED
    assert "stopped answering" in result.failure.message  # by its watch, or by a ping of its socket a moment before


async def test_a_stage_that_cannot_start_says_why(tmp_path: Path):
    leader = ScriptedLeader(ONE)
    await leader.start()
    async with running_fellow(leader.address, tmp_path, habits="dies-at-start"):
        fellow = await leader.connection()
        result = await fellow.ask(load=link_pb2.LoadSignal(spec=ONE.spec("p1")))

    assert result.failure.reason == reason_pb2.REASON_STAGE_FAILED
    assert "code 1" in result.failure.message and "no module named torch" in result.failure.message


async def test_a_load_that_takes_too_long_fails_in_its_time_and_ends_its_stage(tmp_path: Path):
    leader = ScriptedLeader(ONE)
    await leader.start()
    async with running_fellow(leader.address, tmp_path, habits="hangs-in-load"):
        fellow = await leader.connection()
        result = await fellow.ask(timeout_s=4, load=link_pb2.LoadSignal(spec=ONE.spec("p1")))
        await eventually(lambda: stage_pids() == [], "the stage ended")

    assert result.failure.reason == reason_pb2.REASON_DEADLINE
    assert "build" in result.failure.message


async def test_unloading_a_placement_that_is_loading_calls_the_load_off(tmp_path: Path):
    leader = ScriptedLeader(ONE)
    await leader.start()
    async with running_fellow(leader.address, tmp_path, habits="hangs-in-load"):
        fellow = await leader.connection()
        loading = fellow.send(load=link_pb2.LoadSignal(spec=ONE.spec("p1")))
        await eventually(lambda: any(p.step == "build" for p in fellow.progress), "the stage builds")
        unloaded = await fellow.ask(unload=link_pb2.UnloadSignal(placement_id="p1"))
        pids_after_unload = stage_pids()
        result = await fellow.result(loading)

    assert unloaded.HasField("acknowledged") and pids_after_unload == []
    assert result.failure.reason == reason_pb2.REASON_CANCELLED


async def test_a_stage_that_ignores_stop_and_sigterm_is_killed(tmp_path: Path):
    leader = ScriptedLeader(ONE)
    await leader.start()
    async with running_fellow(leader.address, tmp_path, habits="ignores-stop"):
        fellow = await leader.connection()
        await fellow.load(ONE.spec("p1"))
        unloaded = await fellow.ask(unload=link_pb2.UnloadSignal(placement_id="p1"))
        pids = stage_pids()
        unknown = await fellow.ask(unload=link_pb2.UnloadSignal(placement_id="never-seen"))

    assert unloaded.HasField("acknowledged") and pids == []
    assert unknown.HasField("acknowledged")


async def test_the_tokens_to_admit_by_reach_the_stage_and_stay_absent_when_nobody_names_them(tmp_path: Path):
    leader = ScriptedLeader(ONE)
    await leader.start()
    async with running_fellow(leader.address, tmp_path):
        fellow = await leader.connection()
        await fellow.load(ONE.spec("p1"))
        named = await fellow.ask(wire=link_pb2.WireSignal(placement_id="p1", epoch=1, kv_tokens=0))
        unnamed = await fellow.ask(wire=link_pb2.WireSignal(placement_id="p1", epoch=1))

    assert named.wire.failure.endswith("kv tokens 0") and unnamed.wire.failure.endswith("kv tokens unnamed")


async def test_wire_and_probe_reach_the_stage_and_an_older_epoch_is_refused(tmp_path: Path):
    leader = ScriptedLeader(ONE)
    await leader.start()
    async with running_fellow(leader.address, tmp_path):
        fellow = await leader.connection()
        await fellow.load(ONE.spec("p1"))
        wire = link_pb2.WireSignal(placement_id="p1", epoch=3, route=stage_pb2.ROUTE_RELAY)
        wired = await fellow.ask(wire=wire)
        stale = await fellow.ask(wire=link_pb2.WireSignal(placement_id="p1", epoch=2))
        lap = await fellow.ask(probe=link_pb2.ProbeSignal(placement_id="p1"))
        nobody = await fellow.ask(probe=link_pb2.ProbeSignal(placement_id="p9"))
        await eventually(lambda: [s.spec.epoch for s in fellow.stages()] == [3], "heartbeats carry the new epoch")

    assert f"relay {leader.address} in " in wired.wire.failure
    assert stale.failure.reason == reason_pb2.REASON_STALE_EPOCH and stale.failure.metadata["held_epoch"] == "3"
    assert lap.probe.lap_ms == 2.5 and list(lap.probe.stage_ms) == [1.0, 1.0]
    assert nobody.failure.reason == reason_pb2.REASON_MODEL_NOT_READY


@pytest.mark.parametrize(("own", "told_cap"), [("3", 3), ("-1", 0)])
async def test_a_stage_is_told_the_leader_s_choices_and_this_fellow_s_where_there_are_none(
    tmp_path: Path, own: str, told_cap: int
):
    """-1 is the leader's default, and both may read one environment."""
    leader = ScriptedLeader(ONE, TWO)
    await leader.start()
    choices = {"SWARM_SERVE_MAX_BATCH": own, "SWARM_SERVE_ATTENTION": "grouped", "SWARM_MAX_LOADED_MODELS": "2"}
    async with running_fellow(leader.address, tmp_path, **choices):
        fellow = await leader.connection()
        await fellow.load(ONE.spec("p1", in_flight_max=8))
        await fellow.load(TWO.spec("p2", batch_max=2, measure_step_costs=True))
        await eventually(lambda: len(fellow.stages()) == 2, "both are held")
        specs = {stage.spec.placement_id: stage.spec for stage in fellow.stages()}
    told = [(tmp_path / "state" / "logs" / f"tiny--{name}-stage-0.log").read_text() for name in ("one", "two")]

    assert [line.strip() for line in told] == [f"told: grouped, {told_cap}, 0", "told: grouped, 2, 1"]
    assert specs == {
        "p1": ONE.spec("p1", in_flight_max=8),
        "p2": TWO.spec("p2", batch_max=2, measure_step_costs=True),
    }


async def test_a_plan_for_more_requests_than_this_fellow_declared_is_refused_before_anything_is_fetched(tmp_path: Path):
    leader = ScriptedLeader(ONE)
    await leader.start()
    async with running_fellow(leader.address, tmp_path, SWARM_SERVE_MAX_IN_FLIGHT="4"):
        fellow = await leader.connection()
        declared = fellow.register.capabilities.serve_concurrent.in_flight_max
        refused = await fellow.ask(load=link_pb2.LoadSignal(spec=ONE.spec("p1", in_flight_max=5)))
        await fellow.load(ONE.spec("p2", in_flight_max=4))

    assert declared == 4
    assert refused.failure.reason == reason_pb2.REASON_CAPABILITY_MISSING
    assert refused.failure.metadata["in_flight_max"] == "4"


async def test_every_figure_of_a_stage_reaches_the_leader(tmp_path: Path):
    leader = ScriptedLeader(ONE)
    await leader.start()
    async with running_fellow(leader.address, tmp_path, habits="tells-figures"):
        fellow = await leader.connection()
        await fellow.load(ONE.spec("p1"))
        await eventually(lambda: fellow.stages() and fellow.stages()[0].sessions, "a heartbeat has its figures")
        status = fellow.stages()[0]

    figures = [field for field in status.DESCRIPTOR.fields if field.message_type is None and field.enum_type is None]
    assert [getattr(status, field.name) for field in figures] == list(range(1, len(figures) + 1))
