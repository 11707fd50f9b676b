"""A reply over two epochs of one engine thread: what the link tells it is kept, and taken up."""

import asyncio

from silentswarm.core.v1 import generation_pb2
from swarm_core.clock import SystemClock
from swarm_core.errors import LinkBroken
from swarm_stage.engine.admission import Admission
from swarm_stage.engine.budget import KvBudget
from swarm_stage.engine.counters import Counters
from swarm_stage.engine.engine import BeginEpoch, EngineThread, Halt, RingBroke
from swarm_stage.engine.first_stage import FirstStage
from swarm_stage.serve.replies import Replies

from tests.unit.stage_engine.arithmetic_compute import VOCABULARY, ArithmeticCompute

NEW_TOKENS = 1500


class Engine:
    def __init__(self) -> None:
        self.counters, budget, clock = Counters(), KvBudget(4000, 4000), SystemClock()

        def role() -> FirstStage:
            compute = ArithmeticCompute(True, True)
            return FirstStage(compute, Admission(budget, 4), self.counters, clock, self._no_link, lambda: "local", 1, 0)

        self.thread = EngineThread(asyncio.get_running_loop(), role, lambda error: None, lambda: None)
        self.replies = Replies(self.thread.inbox, None, VOCABULARY, budget, clock)

    def _no_link(self, batch: object) -> None:
        raise AssertionError("a ring of one sends nothing")

    async def start(self) -> None:
        self.thread.start()
        await self.thread.built
        self.thread.inbox.put_now(BeginEpoch(1, LinkBroken("rewired")))

    async def stop(self) -> None:
        self.thread.inbox.put_now(Halt())
        await asyncio.to_thread(self.thread.join, 10)

    async def tell(self, resume=None, breaks_at: int = 0) -> list[generation_pb2.GenerationEvent]:
        """Events of the reply; the ring breaks once so many tokens were told."""
        asked = generation_pb2.Generation(new_tokens_max=NEW_TOKENS, resume=resume)
        asked.prompt_ids.ids.extend([5, 7, 11])
        events = []
        async for event in self.replies.generate("r", asked):
            events.append(event)
            if breaks_at and len(ids_of(events)) >= breaks_at:
                self.thread.inbox.put_now(RingBroke(LinkBroken("cut")))
                breaks_at = 0
        return events


def ids_of(events) -> list[int]:
    return [token for event in events for token in event.tokens.ids]


async def test_a_reply_goes_on_in_the_next_epoch_from_what_the_engine_kept():
    engine = Engine()
    await engine.start()
    try:
        whole = await engine.tell()
        before = await engine.tell(breaks_at=5)
        assert before[-1].HasField("failed")
        heard = ids_of(before)
        engine.thread.inbox.put_now(BeginEpoch(2, LinkBroken("rewired"), keep_sessions=True))
        computed = engine.counters.prompt_tokens
        resume = generation_pb2.ReplyResume(ids=heard, sequence=before[-2].sequence)
        after = await engine.tell(resume)
    finally:
        await engine.stop()

    assert 5 <= len(heard) < NEW_TOKENS
    assert heard + ids_of(after) == ids_of(whole)
    assert [event.sequence for event in after] == list(range(before[-2].sequence + 1, after[-1].sequence + 1))
    assert after[-1].done.completion_tokens == NEW_TOKENS and after[-1].done.prompt_tokens == 3
    assert engine.counters.prompt_tokens - computed == 1
    assert (engine.counters.resumed_kept, engine.counters.resumed_anew) == (1, 0)
