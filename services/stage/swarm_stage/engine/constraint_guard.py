"""Asks a reply's constraint, so that it can fail and hold up nothing but its own reply. On the engine thread."""

from collections.abc import Callable
from typing import TypeVar

import structlog
from silentswarm.core.v1 import token_set_pb2
from swarm_core.clock import Clock
from swarm_core.errors import StageFailed, SwarmError

from swarm_stage.engine.constraint import Constraint
from swarm_stage.engine.counters import Counters

log = structlog.get_logger()
Answer = TypeVar("Answer")
# Every other reply waits meanwhile. A mask of a real schema takes well under a millisecond; one answer that took so
# long may be a busy machine, and the reply that would go on asking such things is ended.
ASK_S_MAX = 1.0


class ConstraintGuard:
    """Calls constraints and counts what that took."""

    def __init__(self, clock: Clock, counters: Counters) -> None:
        self._clock = clock
        self._counters = counters

    def allowed(self, constraint: Constraint) -> token_set_pb2.TokenSet | None:
        """What may be drawn next; None is any. Raises StageFailed, or the SwarmError that the constraint raises."""
        self._counters.masks += 1
        return self._ask(constraint.allowed)

    def accept(self, constraint: Constraint, token: int) -> None:
        """Tell what was drawn. Raises likewise."""
        self._ask(lambda: constraint.accept(token))

    def _ask(self, question: Callable[[], Answer]) -> Answer:
        asked_s = self._clock.monotonic_s()
        try:
            answer = question()
        except SwarmError:
            raise
        except BaseException as failure:  # a library in Rust panics with one that is no Exception
            log.warning("a constraint failed", exc_info=failure)
            raise StageFailed(f"the shape of this reply cannot be followed: {failure}") from failure
        finally:
            took_s = self._clock.monotonic_s() - asked_s
            self._counters.masks_s += took_s
        if took_s > ASK_S_MAX:
            raise StageFailed(f"the shape of this reply took {took_s:.1f} s for one token; at most {ASK_S_MAX:g} s")
        return answer
