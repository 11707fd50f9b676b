"""The next step of a reply on stage 0, and the frame it becomes. Computes and sends nothing."""

from collections.abc import Sequence

import numpy as np
from silentswarm.ring.v1 import ring_pb2
from swarm_wire.token_sets import mask_of

from swarm_stage.engine.constraint_guard import ConstraintGuard
from swarm_stage.engine.counters import Counters
from swarm_stage.engine.frames import add_hidden
from swarm_stage.engine.reply import Reply
from swarm_stage.engine.steps import Outcome, Step


class NextSteps:
    """Makes steps; in a ring of one they say too how to draw, else their frames do."""

    def __init__(
        self, vocabulary_size: int, draws_here: bool, constraints: ConstraintGuard, counters: Counters
    ) -> None:
        """draws_here: stage 0 is the last one too."""
        self._vocabulary_size = vocabulary_size
        self._draws_here = draws_here
        self._constraints = constraints
        self._counters = counters

    def decode(self, reply: Reply) -> Step:
        """Compute the newest token, draw the next. Raises what its constraint does."""
        pos = reply.next_pos
        return Step(
            reply.session,
            pos,
            (reply.generated[-1],),
            sampling=reply.sampling,
            held_ids=self._held_ids(reply, pos + 1),
            allowed_V=self._allowed_V(reply),
            prompt_ids=reply.penalised_ids,
            drawn_ids=reply.drawn_before,
        )

    def prompt(self, reply: Reply, tokens: int) -> Step:
        """Compute so many more of what is given; draw behind the last of it. Raises likewise."""
        given, start = reply.request.given_ids, reply.prompt_sent
        stop = reply.prompt_sent = start + tokens
        if not reply.request.probe:
            self._counters.prompt_tokens += tokens
        is_last = stop == len(given)
        return Step(
            reply.session,
            start,
            ids=given[start:stop],
            sampling=reply.sampling,
            sample=is_last,
            held_ids=self._held_ids(reply, stop),
            allowed_V=self._allowed_V(reply) if is_last else None,
            prompt_ids=reply.penalised_ids,
            drawn_ids=reply.drawn_before,
        )

    def _allowed_V(self, reply: Reply) -> np.ndarray | None:
        """What may be drawn next, where stage 0 draws itself; else it is kept for the frame. Raises StageFailed."""
        if reply.request.constraint is None:
            return None
        if not reply.is_shaped:  # asked once a token, also when the ring computes it again
            reply.allowed = self._constraints.allowed(reply.request.constraint)
            reply.is_shaped = True
        if reply.allowed is None or not self._draws_here:
            return None
        return mask_of(reply.allowed, self._vocabulary_size)

    def _held_ids(self, reply: Reply, drawn_pos: int) -> Sequence[int]:
        """What must not be drawn at a position, where stage 0 draws itself."""
        if not self._draws_here or not reply.request.new_tokens_min:
            return ()
        hold = reply.request.hold()
        return tuple(hold.ids) if hold is not None and drawn_pos < hold.until_pos else ()


def add_step(batch: ring_pb2.FrameBatch, reply: Reply, step: Step, outcome: Outcome, trace: ring_pb2.Trace) -> None:
    """Add what came of a step to a batch, with what the other stages must know of a session that is new to them."""
    request = reply.request
    frame = add_hidden(batch, step.session, step.pos, outcome, step.sample, trace)
    if request.probe:
        frame.hidden.probe = True
    if reply.allowed is not None:
        frame.hidden.allowed.CopyFrom(reply.allowed)
    if step.pos == 0 or step.pos == reply.resumes_at:
        introduce(frame.hidden, reply)
    if step.pos and step.pos == reply.resumes_at:
        frame.hidden.resumes = True
    elif step.pos < reply.resumes_at:
        frame.hidden.rebuilds = True


def introduce(hidden: ring_pb2.Hidden, reply: Reply) -> None:
    """Give a session's first frame what goes with it."""
    request = reply.request
    hidden.reserved_tokens = request.needed_tokens
    hidden.sampling.CopyFrom(request.sampling)
    hidden.adapter = request.adapter
    hidden.reply_key = request.reply_key
    hidden.prompt_ids.extend(reply.penalised_ids)
    hidden.drawn_ids.extend(reply.drawn_before)
    hold = request.hold()
    if hold is not None:
        hidden.hold.CopyFrom(hold)
