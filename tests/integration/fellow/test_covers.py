"""Stages held outside of their rings: hot and warm, switched in, taken over by a load, ended."""

import os
import signal
from pathlib import Path

from silentswarm.core.v1 import reason_pb2
from silentswarm.fellow.v1 import fellow_link_pb2 as link_pb2

from tests.integration.fellow.running_fellow import running_fellow, stage_pids
from tests.integration.fellow.scripted_leader import FellowConnection, ScriptedLeader, TinyModel, eventually

ONE, TWO = TinyModel("tiny/one"), TinyModel("tiny/two")
HOT, WARM = link_pb2.COVER_KIND_HOT, link_pb2.COVER_KIND_WARM


async def cover(fellow: FellowConnection, spec, kind=HOT) -> link_pb2.CoverDone:
    """COVER that must work."""
    signal_ = link_pb2.CoverSignal(spec=spec, kind=kind, listen=True)
    result = await fellow.ask(cover=signal_)
    assert result.WhichOneof("outcome") == "cover", result
    return result.cover


def covers_of(fellow: FellowConnection) -> list[tuple[str, int, int]]:
    """Covers of the newest heartbeat."""
    held = fellow.heartbeats[-1].covers if fellow.heartbeats else []
    return [(one.spec.placement_id, one.spec.stage_index, one.kind) for one in held]


async def test_a_hot_cover_is_loaded_beside_the_models_held_and_no_stage(tmp_path: Path):
    leader = ScriptedLeader(ONE, TWO)
    await leader.start()
    async with running_fellow(leader.address, tmp_path, SWARM_MODEL_IDLE_UNLOAD_S="0.5"):
        fellow = await leader.connection()
        done = await cover(fellow, TWO.spec("p2", stage_index=1, epoch=7))
        again = await cover(fellow, TWO.spec("p2", stage_index=1, epoch=8))
        await fellow.load(ONE.spec("p1"))
        await eventually(lambda: covers_of(fellow) == [("p2", 1, HOT)], "a heartbeat tells of the cover")
        await eventually(lambda: fellow.events, "the idle stage was unloaded")
        await eventually(lambda: len(stage_pids()) == 1, "its process ended")
        await eventually(lambda: not fellow.stages(), "heartbeats carry no stage any more")

    assert done.cover.spec.epoch == 0 and done.cover.weight_bytes > 0 and done.fetched_bytes > 0
    assert list(done.cover.ring_addresses) == ["127.0.0.1:4242"] and done.cover.kv_tokens_measured == 2
    assert again.cover == done.cover and again.fetched_bytes == 0
    assert [event.spec.placement_id for event in fellow.events] == ["p1"]
    assert covers_of(fellow) == [("p2", 1, HOT)]
    assert fellow.register.capabilities.HasField("cover")


async def test_wire_switches_a_hot_cover_in_and_it_is_a_stage_from_then_on(tmp_path: Path):
    leader = ScriptedLeader(ONE)
    await leader.start()
    async with running_fellow(leader.address, tmp_path):
        fellow = await leader.connection()
        await cover(fellow, ONE.spec("p1", stage_index=1))
        pid = stage_pids()[0]
        without = await fellow.ask(wire=link_pb2.WireSignal(placement_id="p1", epoch=3))
        other = await fellow.ask(wire=link_pb2.WireSignal(placement_id="p1", epoch=3, stage_index=0))
        wired = await fellow.ask(wire=link_pb2.WireSignal(placement_id="p1", epoch=3, stage_index=1))
        wrong = await fellow.ask(wire=link_pb2.WireSignal(placement_id="p1", epoch=4, stage_index=0))
        await eventually(lambda: [s.spec.epoch for s in fellow.stages()] == [3], "it is reported as a stage")
        covers = covers_of(fellow)
        os.kill(pid, signal.SIGKILL)
        await eventually(lambda: fellow.events, "its crash is told as any stage's")

    assert without.failure.reason == other.failure.reason == reason_pb2.REASON_MODEL_NOT_READY
    assert "kv tokens" in wired.wire.failure and wrong.failure.reason == reason_pb2.REASON_CONFLICT
    assert covers == []
    assert [(event.kind, event.spec.epoch) for event in fellow.events] == [(link_pb2.STAGE_EVENT_KIND_CRASHED, 3)]


async def test_a_load_takes_the_cover_of_that_very_stage_and_ends_one_of_another_make(tmp_path: Path):
    leader = ScriptedLeader(ONE)
    await leader.start()
    async with running_fellow(leader.address, tmp_path, SWARM_MAX_LOADED_MODELS="2"):
        fellow = await leader.connection()
        held = await cover(fellow, ONE.spec("p1"))
        await cover(fellow, ONE.spec("p2", context_tokens=128))
        pids = set(stage_pids())
        taken = await fellow.load(ONE.spec("p1", epoch=5), listen=True)
        loaded = await fellow.load(ONE.spec("p2"), listen=True)
        await eventually(lambda: len(fellow.stages()) == 2 and not covers_of(fellow), "both are stages")
        after = set(stage_pids())

    assert taken.weight_bytes == held.cover.weight_bytes == loaded.weight_bytes and taken.fetched_bytes == 0
    assert len(pids & after) == 1 and len(after) == 2


async def test_a_warm_cover_keeps_its_files_and_can_become_hot(tmp_path: Path):
    leader = ScriptedLeader(ONE)
    await leader.start()
    spec = ONE.spec("p1")
    async with running_fellow(leader.address, tmp_path):
        fellow = await leader.connection()
        warm = await cover(fellow, spec, WARM)
        none_started = stage_pids()
        uses = list((tmp_path / "models" / "uses").glob("*.use"))
        hot = await cover(fellow, spec)
        uses_of_hot = list((tmp_path / "models" / "uses").glob("*.use"))
        still_hot = await cover(fellow, spec, WARM)
        await fellow.ask(uncover=link_pb2.UncoverSignal(placement_id="p1", stage_index=0))
        unknown = await fellow.ask(uncover=link_pb2.UncoverSignal(placement_id="never", stage_index=3))
        await eventually(lambda: not covers_of(fellow), "no cover is told of")
        pids, left = stage_pids(), list((tmp_path / "models" / "uses").glob("*.use"))

    assert warm.cover.kind == WARM and warm.fetched_bytes > 0 and none_started == []
    assert hot.cover.kind == still_hot.cover.kind == HOT and hot.fetched_bytes == 0
    assert len(uses) == len(uses_of_hot) == 1 and pids == left == []
    assert unknown.HasField("acknowledged")


async def test_a_cover_whose_process_dies_is_off_the_list_and_no_event(tmp_path: Path):
    leader = ScriptedLeader(ONE)
    await leader.start()
    async with running_fellow(leader.address, tmp_path):
        fellow = await leader.connection()
        await cover(fellow, ONE.spec("p1"))
        await eventually(lambda: covers_of(fellow), "the cover is told of")
        os.kill(stage_pids()[0], signal.SIGKILL)
        await eventually(lambda: not covers_of(fellow), "it is told of no more")

    assert not fellow.events


async def test_a_failed_cover_leaves_nothing_and_says_why(tmp_path: Path):
    leader = ScriptedLeader(ONE)
    await leader.start()
    async with running_fellow(leader.address, tmp_path, habits="dies-in-load"):
        fellow = await leader.connection()
        failed = await fellow.ask(cover=link_pb2.CoverSignal(spec=ONE.spec("p1"), kind=HOT))
        neither = await fellow.ask(cover=link_pb2.CoverSignal(spec=ONE.spec("p1")))
        left = list((tmp_path / "models" / "uses").glob("*.use"))

    assert failed.failure.reason == reason_pb2.REASON_STAGE_FAILED and "layer 3" in failed.failure.message
    assert neither.failure.reason == reason_pb2.REASON_BAD_REQUEST and left == []


async def test_covers_end_with_their_placement_and_with_everything(tmp_path: Path):
    leader = ScriptedLeader(ONE)
    await leader.start()
    async with running_fellow(leader.address, tmp_path):
        fellow = await leader.connection()
        await cover(fellow, ONE.spec("p1"))
        await cover(fellow, ONE.spec("p2"))
        await fellow.ask(unload=link_pb2.UnloadSignal(placement_id="p1"))
        one_left = len(stage_pids())
        await fellow.ask(stop=link_pb2.StopSignal())
        none_left = stage_pids()

    assert one_left == 1 and none_left == []


async def test_ending_a_cover_that_is_being_made_calls_it_off(tmp_path: Path):
    leader = ScriptedLeader(ONE)
    await leader.start()
    async with running_fellow(leader.address, tmp_path, habits="hangs-in-load"):
        fellow = await leader.connection()
        making = fellow.send(cover=link_pb2.CoverSignal(spec=ONE.spec("p1"), kind=HOT))
        await eventually(lambda: any(p.step == "build" for p in fellow.progress), "the cover builds")
        ended = await fellow.ask(uncover=link_pb2.UncoverSignal(placement_id="p1", stage_index=0))
        pids = stage_pids()
        result = await fellow.result(making)

    assert ended.HasField("acknowledged") and pids == []
    assert result.failure.reason == reason_pb2.REASON_CANCELLED


async def test_covers_outlive_the_link_and_are_told_at_the_next_registration(tmp_path: Path):
    leader = ScriptedLeader(ONE)
    await leader.start()
    async with running_fellow(leader.address, tmp_path):
        fellow = await leader.connection()
        done = await cover(fellow, ONE.spec("p1"))
        await leader.stop()
        await leader.start()
        told = (await leader.connection(2)).register.covers

    assert [one.spec for one in told] == [done.cover.spec] and told[0].kind == HOT
