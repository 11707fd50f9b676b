"""A whole ring in one thread: the real roles, links replaced by queues that a test pumps in any order."""

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from silentswarm.core.v1 import generation_pb2, stage_pb2
from silentswarm.ring.v1 import ring_pb2
from swarm_core.clock import ManualClock
from swarm_core.errors import LinkBroken
from swarm_stage.engine.admission import Admission
from swarm_stage.engine.budget import KvBudget
from swarm_stage.engine.constraint import Constraint
from swarm_stage.engine.counters import Counters
from swarm_stage.engine.first_stage import FirstStage
from swarm_stage.engine.later_stage import LaterStage
from swarm_stage.engine.reply import Broke, Finished, Likelihood, Note, Request, Tokens, Waiting
from swarm_stage.engine.steps import Compute

from tests.unit.stage_engine.arithmetic_compute import HIDDEN, ArithmeticCompute


@dataclass
class Heard:
    """What one request was told, and when on stage 0's clock."""

    clock: ManualClock
    notes: list[Note] = field(default_factory=list)
    heard_s: list[float] = field(default_factory=list)

    def hear(self, note: Note) -> None:
        self.notes.append(note)
        self.heard_s.append(self.clock.monotonic_s())

    @property
    def token_s(self) -> list[float]:
        """When each token came."""
        timed = zip(self.notes, self.heard_s, strict=True)
        return [heard_s for note, heard_s in timed if isinstance(note, Tokens) and note.ids]

    @property
    def gaps_s(self) -> list[float]:
        """Between one token and the next."""
        return [after - before for before, after in pairwise(self.token_s)]

    @property
    def tokens(self) -> list[int]:
        return [token for note in self.notes if isinstance(note, Tokens) for token in note.ids]

    @property
    def likelihoods(self) -> list[Likelihood]:
        return [likelihood for note in self.notes if isinstance(note, Tokens) for likelihood in note.likelihoods]

    @property
    def waiting(self) -> list[Waiting]:
        return [note for note in self.notes if isinstance(note, Waiting)]

    @property
    def finished(self) -> Finished | None:
        return next((note for note in self.notes if isinstance(note, Finished)), None)

    @property
    def broke(self) -> Broke | None:
        return next((note for note in self.notes if isinstance(note, Broke)), None)


class MemoryRing:
    """Stages 0..n-1 with a queue in front of each. computes: instead of arithmetic ones, one a stage.

    codec: of every link that carries hidden states.
    """

    def __init__(
        self,
        stages: int,
        chunk: int = 0,
        kv_tokens: int = 100_000,
        in_flight: int = 8,
        context_tokens: int = 4096,
        poison: dict[int, int] | None = None,
        batch_max: int = 0,
        computes: Sequence[Compute] | None = None,
        hidden_size: int = HIDDEN,
        clocks: Sequence[ManualClock] | None = None,
        codec: str = "",
        tape_bytes_max: int = 0,
    ) -> None:
        self.clock = ManualClock()
        self.clocks = clocks or [self.clock] * stages
        self.links: list[deque[tuple[ring_pb2.FrameBatch, float]]] = [deque() for _ in range(stages)]
        self.sent: list[ring_pb2.FrameBatch] = []
        self.counters = [Counters() for _ in range(stages)]
        poison = poison or {}
        self.computes: Sequence[Any] = computes or [
            ArithmeticCompute(is_first=index == 0, is_last=index == stages - 1, poison=poison.get(index))
            for index in range(stages)
        ]
        self.budget = KvBudget(kv_tokens, context_tokens)

        def first() -> FirstStage:
            self.budget = KvBudget(kv_tokens, context_tokens)
            return FirstStage(
                self.computes[0],
                Admission(self.budget, in_flight),
                self.counters[0],
                self.clocks[0],
                self._sender(0),
                lambda: "direct",
                stages,
                chunk,
                batch_max,
                tape_bytes_max,
                chunk or 3,
            )

        def later(index: int) -> LaterStage:
            return LaterStage(
                self.computes[index],
                _spec(index, stages, in_flight, context_tokens, codec),
                hidden_size,
                self.counters[index],
                self.clocks[index],
                self._sender(index),
                tape_bytes_max,
                chunk or 3,
            )

        self._make = lambda index: later(index) if index else first()
        self.first = first()
        self.later = [later(index) for index in range(1, stages)]
        self.epoch = 0
        self.begin_epoch(1)

    def begin_epoch(self, epoch: int, keeps: bool = False, fresh: Collection[int] = ()) -> None:
        self.epoch = epoch
        for role in (self.first, *self.later):
            role.begin_epoch(epoch, LinkBroken("rewired"), keeps, fresh)

    def break_off(self) -> None:
        """Every stage hears that the ring broke; what was under way is lost."""
        for role, link in zip((self.first, *self.later), self.links, strict=True):
            role.break_off(LinkBroken("cut"))
            link.clear()

    def renew(self, stage: int, compute: Compute) -> None:
        """Another process takes a stage over: it holds nothing."""
        self.computes = [*self.computes]
        self.computes[stage] = compute
        self.counters[stage] = Counters()
        role = self._make(stage)
        if isinstance(role, FirstStage):
            self.first = role
        else:
            self.later[stage - 1] = role

    def submit(
        self,
        name: str,
        prompt: list[int],
        new_tokens: int = 5,
        end_ids: frozenset[int] = frozenset(),
        caller: str = "",
        weight: float = 1.0,
        new_tokens_min: int = 0,
        sampling: generation_pb2.Sampling | None = None,
        constraint: Constraint | None = None,
        adapter: str = "",
        resume: Sequence[int] = (),
    ) -> Heard:
        heard = Heard(self.clocks[0])
        request = Request(
            request_id=name,
            prompt_ids=tuple(prompt),
            sampling=sampling or generation_pb2.Sampling(temperature=0),
            new_tokens_max=new_tokens,
            end_ids=end_ids,
            notify=heard.hear,
            arrived_s=self.clocks[0].monotonic_s(),
            caller=caller,
            caller_weight=weight,
            new_tokens_min=new_tokens_min,
            constraint=constraint,
            adapter=adapter,
            resume_ids=tuple(resume),
        )
        self.first.submit(request)
        self.first.refresh_counters()
        return heard

    def cancel(self, name: str) -> None:
        self.first.cancel(name)
        self.first.refresh_counters()

    def step(self, stage: int) -> bool:
        """Let one stage do one thing; False when it had nothing to do."""
        queue = self.links[stage]
        role = self.role(stage)
        if queue:
            batch, arrived_s = queue.popleft()
            if isinstance(role, LaterStage):
                role.look_ahead([behind for behind, _ in queue])
            role.on_batch(batch, arrived_s)
            if isinstance(role, LaterStage):
                role.turn()
        elif role.has_work:
            role.turn()
        else:
            return False
        role.refresh_counters()
        return True

    def role(self, stage: int) -> FirstStage | LaterStage:
        return self.later[stage - 1] if stage else self.first

    def run(self, rounds: int = 100_000) -> None:
        """Go round until nothing moves."""
        for _ in range(rounds):
            if not any([self.step(stage) for stage in range(len(self.links))]):
                return
        raise AssertionError("the ring never came to rest")

    def deliver(self, stage: int, batch: ring_pb2.FrameBatch) -> None:
        """Put a batch in front of a stage, arriving now."""
        self.links[stage].append((batch, self.clocks[stage].monotonic_s()))

    def _sender(self, stage: int):
        def send(batch: ring_pb2.FrameBatch) -> None:
            # Through bytes, as a link would: nothing is shared by reference.
            sent = batch.SerializeToString()
            self.sent.append(ring_pb2.FrameBatch.FromString(sent))
            self.deliver((stage + 1) % len(self.links), ring_pb2.FrameBatch.FromString(sent))

        return send


def _spec(index: int, stages: int, in_flight: int, context_tokens: int, codec: str) -> stage_pb2.StageSpec:
    return stage_pb2.StageSpec(
        stage_index=index,
        stage_count=stages,
        layer_start=index,
        layer_stop=index + 1,
        dtype="F32",
        context_tokens=context_tokens,
        in_flight_max=in_flight,
        codec_in=codec,
        codec_out=codec if index < stages - 1 else "",
    )


def lone_run(prompt: list[int], stages: int, new_tokens: int) -> list[int]:
    """What a request gets alone, whole prompt at once."""
    ring = MemoryRing(stages)
    heard = ring.submit("alone", prompt, new_tokens)
    ring.run()
    return heard.tokens
