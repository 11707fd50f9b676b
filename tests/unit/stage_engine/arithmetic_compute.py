"""A model of plain arithmetic: its next token depends on every id so far and on every stage having passed. No torch.

Held to the same contract as the real one by test_compute_contract.py.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from silentswarm.core.v1 import tensor_pb2
from swarm_core.errors import BadFrame, BadRequest, StageFailed
from swarm_stage.engine.reply import Likelihood
from swarm_stage.engine.steps import Outcome, Step

HIDDEN = 2
VOCABULARY = 997


@dataclass
class Rows:
    """A session's cache that no session uses now."""

    rows: list[int]
    added: int

    @property
    def length(self) -> int:
        return len(self.rows)


class ArithmeticCompute:
    """hidden = [id, stages passed]; the last stage draws from the sum of all ids and stages it holds.

    batches: False refuses to be given several sessions in one call. spend: called with every call's steps and whether
    each draws; it moves a test's clock and returns what the call took to compute and to draw, in microseconds.
    adapters: by name, what each adds to every position's sum.
    """

    vocabulary_size = VOCABULARY

    def __init__(
        self,
        is_first: bool,
        is_last: bool,
        poison: int | None = None,
        batches: bool = True,
        spend: Callable[[Sequence[Step], bool], tuple[int, int]] | None = None,
        adapters: Mapping[str, int] = {},
    ) -> None:
        self.batches = batches
        self._is_first = is_first
        self._is_last = is_last
        self._poison = poison  # an id whose computation fails
        self.room_tokens: int | None = None  # a larger reservation finds no memory
        self._spend = spend or (lambda steps, draws: (1, 0))
        self._adapters = {"": 0, **adapters}
        self._added: dict[int, int] = {}  # per session
        self._held: dict[int, list[int]] = {}  # per session, per position: the sum of all up to it

    def open(self, session: int, reserved_tokens: int, adapter: str = "") -> None:
        if adapter not in self._adapters:
            raise BadRequest(f"no adapter {adapter!r} here", field="adapter")
        if self.room_tokens is not None and reserved_tokens > self.room_tokens:
            raise StageFailed(f"no memory for {reserved_tokens} positions")
        self._held[session] = []
        self._added[session] = self._adapters[adapter]

    def close(self, session: int) -> None:
        self._held.pop(session, None)

    def detach(self, session: int) -> "Rows | None":
        rows = self._held.pop(session, None)
        return None if rows is None else Rows(rows, self._added[session])

    def attach(self, session: int, held: "Rows", length: int) -> bool:
        if held.length < length:
            return False
        del held.rows[length:]
        self._held[session], self._added[session] = held.rows, held.added
        return True

    def held_tokens(self) -> int:
        return sum(len(rows) for rows in self._held.values())

    def forward(self, steps: Sequence[Step]) -> list[Outcome]:
        assert len({step.session for step in steps}) == len(steps)
        assert self.batches or len(steps) == 1
        compute_us, sample_us = self._spend(steps, self._is_last)
        return [replace(self._forward_one(step), compute_us=compute_us, sample_us=sample_us) for step in steps]

    def _forward_one(self, step: Step) -> Outcome:
        held = self._held.get(step.session)
        if held is None or len(held) < step.pos:
            return Outcome(1, error=BadFrame("the session does not hold this position"))
        del held[step.pos :]
        rows = self._rows(step)
        if self._poison is not None and any(row[0] == self._poison for row in rows):
            return Outcome(1, error=StageFailed("poisoned"))
        passed = [(token, stages + 1) for token, stages in rows]
        total = held[-1] if held else 0
        for token, stages in passed:
            total += int(token) * (len(held) + 1) + int(stages) + self._added[step.session]
            held.append(total)
        if not self._is_last:
            data = np.array(passed, dtype="<f4").tobytes()
            return Outcome(1, hidden=tensor_pb2.Tensor(dtype="F32", shape=[len(passed), HIDDEN], data=data))
        if not step.sample:
            return Outcome(1)
        may_come = set(range(VOCABULARY) if step.allowed_V is None else np.flatnonzero(step.allowed_V).tolist())
        if not may_come:
            return Outcome(1, error=StageFailed("nothing is allowed"))
        may_come = may_come - set(step.held_ids) or may_come
        token = total % VOCABULARY
        while token not in may_come:  # the next best, as a masked model would
            token = (token + 1) % VOCABULARY
        top = step.sampling.top_logprobs if step.sampling is not None else None
        likelihood = None if top is None else Likelihood(-1.0, tuple((id, -1.0 - id) for id in range(top)))
        return Outcome(1, token=token, likelihood=likelihood)

    def _rows(self, step: Step) -> list[tuple[float, float]]:
        if self._is_first:
            return [(float(token), 0.0) for token in step.ids or ()]
        assert step.hidden is not None
        return [tuple(row) for row in np.frombuffer(step.hidden.data, dtype="<f4").reshape(-1, HIDDEN).tolist()]
