"""Replies over the inference link, from real stand-in stages: events, cancels, refusals, crashes."""

import asyncio
import random
from pathlib import Path

from silentswarm.core.v1 import reason_pb2, stage_pb2
from silentswarm.fellow.v1 import fellow_link_pb2 as link_pb2
from swarm_core.clock import SystemClock
from swarm_fellow.flows.serve import ReplyServer
from swarm_fellow.flows.stages import HeldStage
from swarm_rpc.channel import dial

from tests.integration.fellow.running_fellow import running_fellow
from tests.integration.fellow.scripted_leader import FellowConnection, ScriptedLeader, TinyModel, eventually

ONE = TinyModel()


def sessions_of(fellow: FellowConnection) -> list[int]:
    """Sessions the stage holds, by the newest heartbeat."""
    return [status.sessions for status in fellow.stages()]


async def test_events_of_replies_arrive_whole_and_in_order_also_side_by_side(tmp_path: Path):
    leader = ScriptedLeader(ONE)
    await leader.start()
    async with running_fellow(leader.address, tmp_path):
        fellow, stream = await leader.connection(), await leader.stream()
        await fellow.load(ONE.spec("p1"))
        for request_id in ("r1", "r2", "r3"):
            stream.request(request_id, "count 200")
        replies = [await stream.reply(request_id) for request_id in ("r1", "r2", "r3")]

    assert stream.hello.fellow_id == "f1"
    assert stream.hello.process_nonce == fellow.register.process_nonce != ""
    for reply in replies:
        assert [event.sequence for event in reply] == list(range(1, 203))
        assert reply[-1].done.completion_tokens == 200


async def test_a_cancel_reaches_the_stage_and_nothing_follows(tmp_path: Path):
    leader = ScriptedLeader(ONE)
    await leader.start()
    async with running_fellow(leader.address, tmp_path):
        fellow, stream = await leader.connection(), await leader.stream()
        await fellow.load(ONE.spec("p1"))
        stream.request("r1", "forever")
        await eventually(lambda: sessions_of(fellow) == [1], "the stage has a session")
        stream.cancel("r1")
        stream.cancel("never-seen")
        await eventually(lambda: sessions_of(fellow) == [0], "the stage ended the session")
        seen = len(stream.events["r1"])
        stream.request("r2", "count 2")
        await stream.reply("r2")

        assert len(stream.events["r1"]) == seen


async def test_another_epoch_or_placement_is_failed_as_stale(tmp_path: Path):
    leader = ScriptedLeader(ONE)
    await leader.start()
    async with running_fellow(leader.address, tmp_path):
        fellow, stream = await leader.connection(), await leader.stream()
        await fellow.load(ONE.spec("p1"))
        stream.request("r1", "count 1", epoch=2)
        stream.request("r2", "count 1", placement_id="p9")
        ends = [(await stream.reply(request_id))[-1] for request_id in ("r1", "r2")]

    assert [(end.sequence, end.failed.reason) for end in ends] == [(1, reason_pb2.REASON_STALE_EPOCH)] * 2


async def test_the_stage_s_own_refusal_keeps_its_reason_and_numbers(tmp_path: Path):
    leader = ScriptedLeader(ONE)
    await leader.start()
    async with running_fellow(leader.address, tmp_path):
        fellow, stream = await leader.connection(), await leader.stream()
        await fellow.load(ONE.spec("p1"))
        stream.request("r1", "too-long")
        end = (await stream.reply("r1"))[-1]

    assert end.failed.reason == reason_pb2.REASON_CONTEXT_TOO_LONG
    assert end.failed.metadata["needed_tokens"] == "9000"


async def test_a_stage_that_dies_in_a_reply_fails_it_with_the_signal_and_the_next_sequence(tmp_path: Path):
    leader = ScriptedLeader(ONE)
    await leader.start()
    async with running_fellow(leader.address, tmp_path):
        fellow, stream = await leader.connection(), await leader.stream()
        await fellow.load(ONE.spec("p1"))
        stream.request("r1", "die")
        reply = await stream.reply("r1")
        await eventually(lambda: fellow.events, "the crash was told")

    assert reply[-1].failed.reason == reason_pb2.REASON_STAGE_FAILED
    assert "SIGSEGV" in reply[-1].failed.message and "segmentation fault ahead" in reply[-1].failed.message
    assert [event.sequence for event in reply] == list(range(1, len(reply) + 1))
    assert fellow.events[0].kind == link_pb2.STAGE_EVENT_KIND_CRASHED


class BuggyTable:
    """Finds a stage that has no process, which no real table would: using it is a bug."""

    def find(self, placement_id: str) -> HeldStage:
        return HeldStage(stage_pb2.StageStatus(spec=ONE.spec(placement_id)), 1)


async def test_a_bug_of_ours_in_a_reply_ends_it_with_an_internal_failure_and_the_stream_lives(tmp_path: Path):
    leader = ScriptedLeader(ONE)
    await leader.start()
    replies = ReplyServer(BuggyTable(), 8, SystemClock(), random.random)
    channel = dial(leader.address)
    serving = asyncio.create_task(replies.run(channel, "f1", ()))
    stream = await leader.stream()
    ends = []
    for request_id in ("r1", "r2"):
        stream.request(request_id, "count 1")
        ends.append((await stream.reply(request_id))[-1])
    serving.cancel()
    await asyncio.wait({serving}, timeout=5)
    await channel.close()

    assert [(end.sequence, end.failed.reason) for end in ends] == [(1, reason_pb2.REASON_INTERNAL)] * 2
    assert "AssertionError" in ends[0].failed.message and len(leader.streams) == 1


async def test_an_unload_in_a_reply_fails_it_as_not_ready(tmp_path: Path):
    leader = ScriptedLeader(ONE)
    await leader.start()
    async with running_fellow(leader.address, tmp_path):
        fellow, stream = await leader.connection(), await leader.stream()
        await fellow.load(ONE.spec("p1"))
        stream.request("r1", "forever")
        await eventually(lambda: len(stream.events.get("r1", [])) > 3, "tokens came")
        await fellow.ask(unload=link_pb2.UnloadSignal(placement_id="p1"))
        end = (await stream.reply("r1"))[-1]

    assert end.failed.reason == reason_pb2.REASON_MODEL_NOT_READY
    assert not fellow.events


async def test_replies_beyond_the_limit_are_refused_and_a_cancel_frees_a_place_at_once(tmp_path: Path):
    leader = ScriptedLeader(ONE)
    await leader.start()
    async with running_fellow(leader.address, tmp_path, SWARM_SERVE_MAX_IN_FLIGHT="2"):
        fellow, stream = await leader.connection(), await leader.stream()
        await fellow.load(ONE.spec("p1"))
        stream.request("r1", "forever")
        stream.request("r2", "forever")
        stream.request("r3", "count 1")
        refused = (await stream.reply("r3"))[-1]
        stream.cancel("r1")
        stream.request("r4", "count 1")
        served = (await stream.reply("r4"))[-1]

    assert refused.failed.reason == reason_pb2.REASON_OVERLOADED
    assert served.HasField("done")


async def test_a_broken_inference_link_ends_its_replies_and_is_opened_again(tmp_path: Path):
    leader = ScriptedLeader(ONE)
    await leader.start()
    async with running_fellow(leader.address, tmp_path):
        fellow, stream = await leader.connection(), await leader.stream()
        await fellow.load(ONE.spec("p1"))
        stream.request("r1", "forever")
        await eventually(lambda: sessions_of(fellow) == [1], "the stage has a session")
        stream.down.put_nowait(None)
        await eventually(lambda: sessions_of(fellow) == [0], "the stage ended the session")
        second = await leader.stream(2)
        second.request("r2", "count 2")
        reply = await second.reply("r2")

    assert reply[-1].HasField("done") and len(leader.connections) == 1


async def test_a_leader_that_reads_nothing_stops_the_stage_and_is_still_heard(tmp_path: Path):
    """What waits for it is bounded: the queue, and the flow control of the two streams behind it."""
    leader = ScriptedLeader(ONE)
    await leader.start()
    async with running_fellow(leader.address, tmp_path):
        fellow, stream = await leader.connection(), await leader.stream()
        await fellow.load(ONE.spec("p1"))
        stream.reads.clear()
        stream.request("r1", f"pages {10**6}")

        def stands_still() -> bool:
            positions = [stage.positions for beat in fellow.heartbeats[-4:] for stage in beat.stages]
            return len(positions) == 4 and positions[0] > 0 and len(set(positions)) == 1

        await eventually(stands_still, "the stage waits for the leader")
        made = fellow.stages()[0].positions
        stream.request("r2", "count 1", epoch=9)  # refused, and the refusal waits as well
        stream.cancel("r1")
        await eventually(lambda: sessions_of(fellow) == [0], "the cancel was heard")
        stream.reads.set()
        refused = (await stream.reply("r2"))[-1]

    assert made < 10_000
    assert refused.failed.reason == reason_pb2.REASON_STALE_EPOCH


async def test_a_kept_reply_goes_on_without_a_leader_and_nothing_of_it_is_lost(tmp_path: Path):
    leader = ScriptedLeader(ONE)
    await leader.start()
    async with running_fellow(leader.address, tmp_path):
        fellow, stream = await leader.connection(), await leader.stream()
        await fellow.load(ONE.spec("p1"))
        stream.request("r1", "forever", keep_ms=20_000, owner="ann", model_id="other/name")
        await eventually(lambda: len(stream.events.get("r1", [])) > 3, "tokens came")
        stream.down.put_nowait(None)
        second = await leader.stream(2)
        had = stream.events["r1"][2].sequence
        second.resume("r1", had)
        await eventually(lambda: len(second.events.get("r1", [])) > 20, "more came")
        second.cancel("r1")
        await eventually(lambda: sessions_of(fellow) == [0], "the stage ended the session")

    (kept,) = second.hello.kept
    assert (kept.request_id, kept.placement_id, kept.epoch, kept.owner) == ("r1", "p1", 1, "ann")
    assert (kept.model_id, kept.first_sequence) == ("other/name", 1)
    assert kept.last_sequence >= had
    sequences = [event.sequence for event in second.events["r1"]]
    assert sequences == list(range(had + 1, had + 1 + len(sequences)))
    assert stream.hello.kept == []


async def test_kept_replies_outlive_the_whole_connection_to_a_leader_that_is_killed(tmp_path: Path):
    leader = ScriptedLeader(ONE)
    await leader.start()
    async with running_fellow(leader.address, tmp_path):
        fellow, stream = await leader.connection(), await leader.stream()
        await fellow.load(ONE.spec("p1"))
        stream.request("r1", "count 30", keep_ms=20_000)
        reply = await stream.reply("r1")  # its end may have been lost with the leader all the same
        stream.request("r2", "forever", keep_ms=20_000)
        stream.request("r3", "forever")
        await eventually(lambda: len(stream.events.get("r3", [])) > 1, "all run")
        await leader.stop()
        await leader.start()
        again, second = await leader.connection(2), await leader.stream(2)
        second.resume("r1", 29)
        rest = await second.reply("r1")
        await eventually(lambda: sessions_of(again) == [1], "what is not kept ended")
        second.cancel("r2")
        await eventually(lambda: sessions_of(again) == [0], "nothing runs")

    assert [kept.request_id for kept in second.hello.kept] == ["r1", "r2"]
    assert rest == reply[29:]


async def test_a_kept_reply_that_nobody_resumes_in_time_is_ended(tmp_path: Path):
    leader = ScriptedLeader(ONE)
    await leader.start()
    async with running_fellow(leader.address, tmp_path):
        fellow, stream = await leader.connection(), await leader.stream()
        await fellow.load(ONE.spec("p1"))
        stream.request("r1", "forever", keep_ms=400)
        await eventually(lambda: sessions_of(fellow) == [1], "the stage has a session")
        stream.down.put_nowait(None)
        second = await leader.stream(2)
        await eventually(lambda: sessions_of(fellow) == [0], "the stage ended the session")
        second.resume("r1", 1)
        (end,) = await second.reply("r1")

    assert (end.sequence, end.failed.reason) == (2, reason_pb2.REASON_REPLY_NOT_FOUND)


async def test_of_a_kept_reply_that_made_too_much_the_oldest_is_gone(tmp_path: Path):
    """A page has 10 kB and more; 4 MiB of them are kept."""
    leader = ScriptedLeader(ONE)
    await leader.start()
    async with running_fellow(leader.address, tmp_path):
        fellow, stream = await leader.connection(), await leader.stream()
        await fellow.load(ONE.spec("p1"))
        stream.reads.clear()
        stream.request("r1", "pages 2000", keep_ms=20_000)
        await eventually(lambda: sessions_of(fellow) == [1], "the stage has a session")
        stream.down.put_nowait(None)
        second = await leader.stream(2)
        await eventually(lambda: sessions_of(fellow) == [0], "the stage is done")
        second.down.put_nowait(None)
        third = await leader.stream(3)
        (kept,) = third.hello.kept
        third.resume("r1", kept.first_sequence - 1)
        rest = await third.reply("r1")
        third.down.put_nowait(None)
        fourth = await leader.stream(4)
        fourth.resume("r1", 1)
        (lost,) = await fourth.reply("r1")
        stream.reads.set()

    assert 100 < kept.first_sequence < kept.last_sequence == 2002
    assert [event.sequence for event in rest] == list(range(kept.first_sequence, 2003))
    assert (lost.sequence, lost.failed.reason) == (2, reason_pb2.REASON_REPLY_NOT_FOUND)


async def test_a_new_attempt_at_a_reply_takes_the_place_of_the_one_that_went_on_alone(tmp_path: Path):
    leader = ScriptedLeader(ONE)
    await leader.start()
    async with running_fellow(leader.address, tmp_path, SWARM_SERVE_MAX_IN_FLIGHT="1"):
        fellow, stream = await leader.connection(), await leader.stream()
        await fellow.load(ONE.spec("p1"))
        stream.request("r1", "forever", keep_ms=20_000)
        await eventually(lambda: sessions_of(fellow) == [1], "the stage has a session")
        stream.down.put_nowait(None)
        second = await leader.stream(2)
        second.request("r1", "count 2", keep_ms=20_000)
        reply = await second.reply("r1")
        await eventually(lambda: sessions_of(fellow) == [0], "the older one is over")

    assert [event.sequence for event in reply] == [1, 2, 3, 4]
    assert reply[-1].HasField("done")


async def test_a_reply_that_goes_on_alone_gives_way_to_a_new_one(tmp_path: Path):
    leader = ScriptedLeader(ONE)
    await leader.start()
    async with running_fellow(leader.address, tmp_path, SWARM_SERVE_MAX_IN_FLIGHT="1"):
        fellow, stream = await leader.connection(), await leader.stream()
        await fellow.load(ONE.spec("p1"))
        stream.request("r1", "forever", keep_ms=20_000)
        await eventually(lambda: sessions_of(fellow) == [1], "the stage has a session")
        stream.down.put_nowait(None)
        second = await leader.stream(2)
        second.request("r2", "count 2", keep_ms=20_000)
        reply = await second.reply("r2")
        second.resume("r1", 1)
        (lost,) = await second.reply("r1")

    assert reply[-1].HasField("done")
    assert lost.failed.reason == reason_pb2.REASON_REPLY_NOT_FOUND
