"""A whole ring in one thread: the real roles, links replaced by queues that a test pumps in any order."""

from collections import deque
from dataclasses import dataclass, field

from silentswarm.core.v1 import generation_pb2, stage_pb2
from silentswarm.ring.v1 import ring_pb2
from swarm_core.clock import ManualClock
from swarm_core.errors import LinkBroken
from swarm_stage.engine.admission import Admission
from swarm_stage.engine.budget import KvBudget
from swarm_stage.engine.counters import Counters
from swarm_stage.engine.first_stage import FirstStage
from swarm_stage.engine.later_stage import LaterStage
from swarm_stage.engine.reply import Broke, Finished, Note, Request, Tokens

from tests.unit.stage_engine.arithmetic_compute import HIDDEN, ArithmeticCompute


@dataclass
class Heard:
    """What one request was told."""

    notes: list[Note] = field(default_factory=list)

    @property
    def tokens(self) -> list[int]:
        return [token for note in self.notes if isinstance(note, Tokens) for token in note.ids]

    @property
    def finished(self) -> Finished | None:
        return next((note for note in self.notes if isinstance(note, Finished)), None)

    @property
    def broke(self) -> Broke | None:
        return next((note for note in self.notes if isinstance(note, Broke)), None)


class MemoryRing:
    """Stages 0..n-1 with a queue in front of each."""

    def __init__(
        self,
        stages: int,
        chunk: int = 0,
        kv_tokens: int = 100_000,
        in_flight: int = 8,
        context_tokens: int = 4096,
        poison: dict[int, int] | None = None,
    ) -> None:
        self.clock = ManualClock()
        self.links: list[deque[ring_pb2.FrameBatch]] = [deque() for _ in range(stages)]
        self.sent: list[ring_pb2.FrameBatch] = []
        self.counters = [Counters() for _ in range(stages)]
        poison = poison or {}
        self.computes = [
            ArithmeticCompute(is_first=index == 0, is_last=index == stages - 1, poison=poison.get(index))
            for index in range(stages)
        ]
        admission = Admission(KvBudget(kv_tokens, context_tokens), in_flight)
        self.first = FirstStage(
            self.computes[0], admission, self.counters[0], self.clock, self._sender(0), lambda: "direct", stages, chunk
        )
        self.later = [
            LaterStage(
                self.computes[index],
                _spec(index, stages, in_flight, context_tokens),
                HIDDEN,
                self.counters[index],
                self.clock,
                self._sender(index),
            )
            for index in range(1, stages)
        ]
        self.begin_epoch(1)

    def begin_epoch(self, epoch: int) -> None:
        for role in (self.first, *self.later):
            role.begin_epoch(epoch, LinkBroken("rewired"))

    def submit(self, name: str, prompt: list[int], new_tokens: int = 5, end_ids: frozenset[int] = frozenset()) -> Heard:
        heard = Heard()
        sampling = generation_pb2.Sampling(temperature=0)
        request = Request(name, tuple(prompt), sampling, new_tokens, end_ids, heard.notes.append, 0.0)
        self.first.submit(request)
        return heard

    def step(self, stage: int) -> bool:
        """Let one stage do one thing; False when it had nothing to do."""
        queue = self.links[stage]
        if queue:
            role = self.first if stage == 0 else self.later[stage - 1]
            role.on_batch(queue.popleft())
            return True
        if stage == 0 and self.first.has_work:
            self.first.turn()
            return True
        return False

    def run(self, rounds: int = 100_000) -> None:
        """Go round until nothing moves."""
        for _ in range(rounds):
            if not any([self.step(stage) for stage in range(len(self.links))]):
                return
        raise AssertionError("the ring never came to rest")

    def _sender(self, stage: int):
        def send(batch: ring_pb2.FrameBatch) -> None:
            # Through bytes, as a link would: nothing is shared by reference.
            arrived = ring_pb2.FrameBatch.FromString(batch.SerializeToString())
            self.sent.append(arrived)
            self.links[(stage + 1) % len(self.links)].append(arrived)

        return send


def _spec(index: int, stages: int, in_flight: int, context_tokens: int) -> stage_pb2.StageSpec:
    return stage_pb2.StageSpec(
        stage_index=index,
        stage_count=stages,
        layer_start=index,
        layer_stop=index + 1,
        dtype="F32",
        context_tokens=context_tokens,
        in_flight_max=in_flight,
    )


def lone_run(prompt: list[int], stages: int, new_tokens: int) -> list[int]:
    """What a request gets alone, whole prompt at once."""
    ring = MemoryRing(stages)
    heard = ring.submit("alone", prompt, new_tokens)
    ring.run()
    return heard.tokens
