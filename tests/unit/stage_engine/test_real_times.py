"""The parts of a real reply add up to its whole time: a tiny llama on an engine thread, a ring of one."""

import asyncio
from pathlib import Path

import pytest
from silentswarm.core.v1 import generation_pb2
from swarm_core.clock import SystemClock
from swarm_core.errors import LinkBroken
from swarm_core.slices import LayerRange
from swarm_stage.engine.admission import Admission
from swarm_stage.engine.budget import KvBudget
from swarm_stage.engine.counters import Counters
from swarm_stage.engine.engine import BeginEpoch, EngineThread, Halt
from swarm_stage.engine.first_stage import FirstStage
from swarm_stage.model.build_slice import build_slice
from swarm_stage.model.holding import Holding
from swarm_stage.serve.replies import Replies
from swarm_stage.serve.torch_compute import TorchCompute

from tests.models import make_tiny_model, read_config, split_tensors

NEW_TOKENS = 250


class Stage:
    """A whole tiny model behind Replies."""

    def __init__(self, folder: Path) -> None:
        clock, budget, self.counters = SystemClock(), KvBudget(4000, 1000), Counters()

        def build() -> FirstStage:
            files, layers = split_tensors(folder, folder / "tensors"), LayerRange(0, 4, 4)
            model = build_slice(read_config(folder), layers, files, Holding("F32"), lambda done, total: None)
            compute = TorchCompute(model, layers, "F32", "cpu")
            return FirstStage(compute, Admission(budget, 8), self.counters, clock, _no_link, lambda: "local", 1, 256)

        self._engine = EngineThread(asyncio.get_running_loop(), build, lambda error: None, lambda: None)
        self.replies = Replies(self._engine.inbox, None, 320, budget, clock)

    async def start(self) -> None:
        self._engine.start()
        await self._engine.built
        self._engine.inbox.put_now(BeginEpoch(1, LinkBroken("rewired")))

    async def timing(self, name: str, prompt_tokens: int) -> generation_pb2.Timing:
        asked = generation_pb2.Generation(new_tokens_max=NEW_TOKENS)
        asked.prompt_ids.ids.extend(3 + index % 300 for index in range(prompt_tokens))
        events = [event async for event in self.replies.generate(name, asked)]
        return events[-1].done.timing

    async def stop(self) -> None:
        self._engine.inbox.put_now(Halt())
        await asyncio.to_thread(self._engine.join, 10)


def _no_link(batch: object) -> None:
    raise AssertionError("a ring of one sends nothing")


@pytest.fixture
async def stage(tmp_path):
    running = Stage(make_tiny_model("llama", tmp_path / "model", layers=4))
    await running.start()
    yield running
    await running.stop()


def explained(timing: generation_pb2.Timing) -> float:
    """The share of the whole time that its parts say where it went."""
    per_token_ms = sum(timing.stage_ms) + timing.sample_ms + timing.wait_ms + timing.link_ms
    parts_ms = timing.queue_ms + timing.prefill_ms + (NEW_TOKENS - 1) * per_token_ms + timing.detokenize_ms
    return parts_ms / timing.total_ms


async def test_the_parts_of_a_reply_add_up_within_5_percent(stage):
    """The best of three: the rest is how long a loaded machine takes to wake a thread once."""
    timings = [await stage.timing(str(number), 40) for number in range(3)]

    assert max(explained(timing) for timing in timings) >= 0.95
    assert max(explained(timing) for timing in timings) <= 1.05
    assert min(timing.link_ms / (timing.decode_ms / NEW_TOKENS) for timing in timings) < 0.15  # no link here


async def test_the_parts_add_up_for_replies_that_share_every_step(stage):
    timings = await asyncio.gather(*[stage.timing(str(number), 10 + 30 * number) for number in range(6)])

    assert max(explained(timing) for timing in timings) >= 0.95
    assert all(timing.batch_mean > 2 for timing in timings)
    assert stage.counters.generated_tokens == 6 * NEW_TOKENS
    assert stage.counters.prompt_tokens == sum(10 + 30 * number for number in range(6))
    assert stage.counters.busy_s > 0
