"""Stage 0 computes steps and hands what comes of them to the ring; in a ring of one that is the answer. No torch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from silentswarm.ring.v1 import ring_pb2
from swarm_core.clock import Clock
from swarm_core.errors import BadFrame, SwarmError

from swarm_stage.engine.counters import Counters
from swarm_stage.engine.frames import elapsed_us
from swarm_stage.engine.next_steps import add_step
from swarm_stage.engine.reply import Likelihood, Reply
from swarm_stage.engine.session_store import SessionStore
from swarm_stage.engine.steps import Compute, Step

Work = list[tuple[Reply, Step]]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a lap brought: a token, or for a prompt piece none, and every stage's trace. answer_bytes: over the link."""

    tokens: Sequence[int]
    likelihoods: tuple[Likelihood, ...]
    traces: Sequence[ring_pb2.Trace]
    arrived_s: float
    answer_bytes: int = 0


class Sending:
    """epoch: of what is sent."""

    def __init__(
        self,
        compute: Compute,
        store: SessionStore,
        counters: Counters,
        clock: Clock,
        send: Callable[[ring_pb2.FrameBatch], None],
        fail: Callable[[Reply, SwarmError], None],
        answer: Callable[[Reply, Answer], None] | None,
    ) -> None:
        """fail: ends one reply. answer: takes answers in a ring of one; None where stages follow."""
        self.epoch = 0
        self._compute = compute
        self._store = store
        self._counters = counters
        self._clock = clock
        self._send = send
        self._fail = fail
        self._answer = answer

    def send(self, frames: Sequence[ring_pb2.Frame]) -> None:
        """Hand frames to the link, in one batch."""
        self._send(ring_pb2.FrameBatch(epoch=self.epoch, frames=frames))

    def run(self, work: Work) -> None:
        """Compute steps and pass on what came of them."""
        started_s = self._clock.monotonic_s()
        for reply, step in work:
            reply.due.append((step.pos, len(step.ids or ())))
            self._counters.positions += len(step.ids or ())
            if reply.batch is not None:
                reply.batch.started_s = started_s
        outcomes = self._compute.forward([step for _, step in work])
        now_s = self._clock.monotonic_s()
        self._counters.busy_s += now_s - started_s
        batch = ring_pb2.FrameBatch(epoch=self.epoch)
        for (reply, step), outcome in zip(work, outcomes, strict=True):
            wait_us = elapsed_us(reply.times.answered_s, started_s) if reply.has_drawn else 0
            trace = ring_pb2.Trace(compute_us=outcome.compute_us, wait_us=wait_us, sample_us=outcome.sample_us)
            if outcome.error is not None:
                self._fail(reply, outcome.error)
            elif self._answer is not None:
                tokens = () if outcome.token is None else (outcome.token,)
                likelihoods = () if outcome.likelihood is None else (outcome.likelihood,)
                self._answer(reply, Answer(tokens, likelihoods, [trace], now_s))
            else:
                if outcome.hidden is not None:
                    self._store.record(step.session, step.pos, outcome.hidden)
                add_step(batch, reply, step, outcome, trace)
        if batch.frames:
            self._send(batch)

    def rebuild(self, reply: Reply, step: Step, goes_further: bool) -> None:
        """Compute a piece that the later stages hold, but for those that are fresh too; nobody answers it."""
        started_s = self._clock.monotonic_s()
        outcome = self._compute.forward([step])[0]
        self._counters.busy_s += self._clock.monotonic_s() - started_s
        self._counters.positions_rebuilt += len(step.ids or ())
        if outcome.error is not None or outcome.hidden is None:
            self._fail(reply, outcome.error or BadFrame("nothing came of a piece"))
            return
        self._store.record(step.session, step.pos, outcome.hidden)
        if goes_further:
            batch = ring_pb2.FrameBatch(epoch=self.epoch)
            add_step(batch, reply, step, outcome, ring_pb2.Trace(compute_us=outcome.compute_us))
            self._send(batch)
