"""Which waiting request starts next: in order, when a place and its whole reservation are free. Pure."""

from collections import deque

from swarm_core.errors import Overloaded

from swarm_stage.engine.budget import KvBudget
from swarm_stage.engine.reply import Admitted, Request

WAITING_MAX = 256  # the leader queues before us and knows the callers; this only bounds memory


class Admission:
    """First come, first served, by tokens and places. A probe takes no place and no tokens."""

    def __init__(self, budget: KvBudget, in_flight_max: int) -> None:
        self._budget = budget
        self._in_flight_max = max(1, in_flight_max)
        self._waiting: deque[Request] = deque()

    @property
    def reserved_tokens(self) -> int:
        """Tokens reserved by running sessions."""
        return self._budget.reserved_tokens

    def limit_kv(self, tokens: int) -> None:
        """Lower the budget; what is reserved beyond it drains by itself."""
        self._budget.tokens = min(self._budget.tokens, tokens)

    def enqueue(self, request: Request) -> None:
        """Wait for a place. Raises ContextTooLong for what never fits, Overloaded when too many wait."""
        if request.probe:
            self._waiting.appendleft(request)
            return
        self._budget.check(len(request.prompt_ids), request.new_tokens_max)
        if len(self._waiting) >= WAITING_MAX:
            raise Overloaded(f"{WAITING_MAX} requests wait for this ring already", waiting=len(self._waiting))
        self._waiting.append(request)

    def next_admissible(self, running: int) -> Request | None:
        """Take the head of the queue if it may start beside `running` others. The head is never overtaken."""
        if not self._waiting:
            return None
        head = self._waiting[0]
        if head.probe or (running < self._in_flight_max and self._budget.fits(_needed_tokens(head))):
            return self._waiting.popleft()
        return None

    def enter(self, session: int, request: Request) -> None:
        """Reserve for a session that starts, and say so."""
        if not request.probe:
            self._budget.reserve(session, _needed_tokens(request))
        request.notify(Admitted(len(request.prompt_ids)))

    def leave(self, session: int) -> None:
        """Give a session's tokens back."""
        self._budget.release(session)

    def forget(self, request_id: str) -> None:
        """A waiting request is no longer wanted."""
        self._waiting = deque(request for request in self._waiting if request.request_id != request_id)

    def drain(self) -> list[Request]:
        """Empty the queue."""
        waiting = list(self._waiting)
        self._waiting.clear()
        return waiting


def _needed_tokens(request: Request) -> int:
    return len(request.prompt_ids) + request.new_tokens_max
