"""A session that is over is freed on every stage at once: its End waits behind nothing."""

import asyncio
import threading

from silentswarm.core.v1 import stage_pb2
from silentswarm.ring.v1 import ring_pb2
from swarm_core.clock import SystemClock
from swarm_core.errors import LinkBroken
from swarm_stage.engine.counters import Counters
from swarm_stage.engine.engine import Arrived, BeginEpoch, EngineThread, Halt
from swarm_stage.engine.later_stage import LaterStage

from tests.unit.stage_engine.arithmetic_compute import HIDDEN, ArithmeticCompute
from tests.unit.stage_engine.memory_ring import MemoryRing, lone_run

PROMPT = [5, 7, 11]


def test_an_end_leaves_stage_0_before_any_step():
    ring = MemoryRing(2)
    ring.submit("a", PROMPT, new_tokens=50)
    ring.submit("b", PROMPT, new_tokens=50)
    for _ in range(5):
        ring.step(0), ring.step(1)
    ring.cancel("a")
    assert ring.first.has_work
    ring.sent.clear()
    ring.first.turn()

    assert ring.sent[0].frames[0].HasField("end")


def test_an_end_that_waits_behind_batches_is_passed_on_before_they_are_computed():
    ring = MemoryRing(3)
    gone = ring.submit("a", PROMPT, new_tokens=50)
    stays = ring.submit("b", PROMPT, new_tokens=6)
    ring.step(0), ring.step(0)  # both prompts wait in front of stage 1
    ring.cancel("a")
    ring.step(0)
    assert len(ring.links[1]) == 3
    ring.sent.clear()
    ring.step(1)
    ring.step(1)

    assert ring.sent[0].frames[0].HasField("end")
    assert ring.counters[1].positions == len(PROMPT)  # of the session that stays
    ring.run()
    assert gone.tokens == []
    assert stays.tokens == lone_run(PROMPT, 3, 6)
    assert [compute.held_tokens() for compute in ring.computes] == [0, 0, 0]
    assert sum(counters.frames_refused for counters in ring.counters) == 0


def test_a_first_frame_behind_which_its_end_waits_opens_nothing_and_cannot_be_replayed():
    ring = MemoryRing(2)
    ring.submit("a", PROMPT, new_tokens=50)
    ring.step(0)
    first_frame = ring_pb2.FrameBatch.FromString(ring.links[1][0][0].SerializeToString())
    ring.cancel("a")
    ring.run()
    assert ring.counters[1].requests == 0
    ring.deliver(1, first_frame)
    ring.run()

    assert ring.counters[1].frames_refused == 1
    assert ring.computes[1].held_tokens() == 0


def test_every_way_to_end_frees_a_session_within_a_lap():
    """Length, end token, stop text (conclude), cancel."""
    end = lone_run(PROMPT, 3, 9)[8]
    for end_it in ("length", "end token", "conclude", "cancel"):
        ring = MemoryRing(3)
        ends = frozenset({end}) if end_it == "end token" else frozenset()
        heard = ring.submit("a", PROMPT, 9 if end_it == "length" else 1000, ends)
        while len(heard.tokens) < 9:
            assert any([ring.step(stage) for stage in range(3)])
        if end_it == "conclude":
            ring.first.conclude("a")
        if end_it == "cancel":
            ring.first.cancel("a")
        positions = [counters.positions for counters in ring.counters]
        ring.run()

        assert [compute.held_tokens() for compute in ring.computes] == [0, 0, 0], end_it
        assert all(c.positions - before <= 1 for c, before in zip(ring.counters, positions, strict=True)), end_it


async def test_the_engine_thread_frees_a_session_while_batches_wait_before_its_end():
    """A later stage that is busy with one step sees the End behind the next ones as soon as it is done."""
    started, go_on = threading.Event(), threading.Event()
    computed: list[int] = []

    def spend(steps, draws) -> tuple[int, int]:
        computed.extend(step.session for step in steps)
        started.set()
        assert go_on.wait(10)
        return 1, 0

    sent: list[ring_pb2.FrameBatch] = []
    compute = ArithmeticCompute(False, False, spend=spend)
    spec = stage_pb2.StageSpec(stage_index=1, stage_count=3, dtype="F32", context_tokens=99, in_flight_max=4)
    role = LaterStage(compute, spec, HIDDEN, Counters(), SystemClock(), sent.append)
    loop = asyncio.get_running_loop()
    engine = EngineThread(loop, lambda: role, lambda error: None, lambda: None)
    engine.start()
    await engine.built
    engine.inbox.put_now(BeginEpoch(1, LinkBroken("rewired")))
    for session in (1, 2, 3):
        hidden = ring_pb2.Hidden()
        hidden.hidden.dtype, hidden.hidden.data = "F32", bytes(8)
        hidden.hidden.shape.extend([1, 2])
        frames = [ring_pb2.Frame(session=session, hidden=hidden)]
        await engine.inbox.put(Arrived(ring_pb2.FrameBatch(epoch=1, frames=frames), 0.0))
    await asyncio.to_thread(started.wait, 10)
    end = ring_pb2.Frame(session=2, end=ring_pb2.End())
    await engine.inbox.put(Arrived(ring_pb2.FrameBatch(epoch=1, frames=[end]), 0.0))
    go_on.set()
    engine.inbox.put_now(Halt())
    await asyncio.to_thread(engine.join, 10)

    assert computed == [1, 3]
    assert [frame.WhichOneof("body") for batch in sent for frame in batch.frames] == ["hidden", "end", "hidden"]
    assert compute.held_tokens() == 2
