"""How long a reply goes on whose link breaks again and again: a real reply server over real streams, no process."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from silentswarm.core.v1 import generation_pb2, stage_pb2
from swarm_core.clock import SystemClock
from swarm_fellow.flows.serve import ReplyServer
from swarm_fellow.flows.stages import HeldStage
from swarm_rpc.channel import dial

from tests.integration.fellow.scripted_leader import InferenceStream, ScriptedLeader, TinyModel, eventually

ONE = TinyModel()
KEEP_S = 0.8
Event = generation_pb2.GenerationEvent


class EndlessStage(HeldStage):
    """Makes tokens until nobody wants them. running: its replies."""

    running = 0

    def client(self):
        return self

    async def generate(self, request_id: str, generation: generation_pb2.Generation) -> AsyncIterator[Event]:
        self.running += 1
        try:
            sequence = 1
            yield Event(sequence=sequence, started=Event.Started(prompt_tokens=1))
            while True:
                await asyncio.sleep(0.02)
                sequence += 1
                yield Event(sequence=sequence, tokens=Event.TokenBatch(text="x", ids=[sequence]))
        finally:
            self.running -= 1


class OneStage:
    """A table of one stage."""

    def __init__(self) -> None:
        self.stage = EndlessStage(stage_pb2.StageStatus(spec=ONE.spec("p1")), 1)

    def find(self, placement_id: str) -> HeldStage:
        return self.stage


@asynccontextmanager
async def serving(leader: ScriptedLeader) -> AsyncIterator[EndlessStage]:
    """A fellow's reply server, which redials after 0.25 s each time."""
    await leader.start()
    table = OneStage()
    replies = ReplyServer(table, 8, SystemClock(), lambda: 0.0)
    channel = dial(leader.address)
    running = asyncio.create_task(replies.run(channel, "f1", ()))
    try:
        yield table.stage
    finally:
        running.cancel()
        await asyncio.wait({running}, timeout=5)
        await replies.close()
        await channel.close()
        await leader.stop()


async def begin(leader: ScriptedLeader, stage: EndlessStage) -> InferenceStream:
    """A reply that runs, and the stream it was asked for on."""
    stream = await leader.stream()
    stream.request("r1", "forever", keep_ms=int(KEEP_S * 1000))
    await eventually(lambda: stage.running, "the stage makes it")
    return stream


async def test_a_link_that_breaks_again_and_again_keeps_no_reply_for_ever():
    """Each break and each hello began the time anew, so that a flapping link held a stage's place without end."""
    leader = ScriptedLeader(ONE)
    async with serving(leader) as stage:
        stream = await begin(leader, stage)
        broke_s, breaks = time.monotonic(), 0
        while stage.running and time.monotonic() < broke_s + 6 * KEEP_S:
            stream.down.put_nowait(None)
            breaks += 1
            stream = await leader.stream(breaks + 1)
        ended_s = time.monotonic()

        assert stage.running == 0
        assert breaks > 3
        assert KEEP_S < ended_s - broke_s < 4 * KEEP_S


async def test_one_that_is_resumed_each_time_is_kept_through_every_break():
    leader = ScriptedLeader(ONE)
    async with serving(leader) as stage:
        stream = await begin(leader, stage)
        broke_s, had = time.monotonic(), 0
        sequences: list[int] = []
        for number in range(2, 10):
            await eventually(lambda stream=stream: len(stream.events.get("r1", [])) > 3, "tokens came")
            stream.down.put_nowait(None)
            sequences += [event.sequence for event in stream.events["r1"]]
            had = sequences[-1]
            stream = await leader.stream(number)
            assert [kept.request_id for kept in stream.hello.kept] == ["r1"]
            stream.resume("r1", had)
        stream.cancel("r1")
        await eventually(lambda: not stage.running, "the stage ended it")

    assert time.monotonic() - broke_s > 2 * KEEP_S
    assert sequences == list(range(1, had + 1))
