"""Which waiting request starts next: callers by weight, when a place and its whole reservation are free. Pure."""

from collections import deque

from swarm_core.errors import Overloaded
from swarm_core.fair_queue import FairQueue

from swarm_stage.engine.budget import KvBudget
from swarm_stage.engine.reply import Admitted, Request, Waiting

WAITING_MAX = 256  # the leader queues before us; this only bounds memory
OVERTAKES_MAX = 8  # requests that may start before one that does not fit yet; then it is the next of all
TELL_EVERY_S = 1.0  # a place in the queue is told when it changes, but no more often
LOOK_EVERY_S = 0.001  # per request beyond the first few: finding every place takes longer the more wait
LOOK_FREE = 16


class Admission:
    """By tokens and places, fair between callers. A probe takes no place, no tokens and no turn.

    The order is FairQueue's: a caller stands back by the tokens its requests reserved. Where the next request does not
    fit, one of another caller that fits may pass it, OVERTAKES_MAX times in all: small requests need not wait for a
    large one, and a large one does not wait for ever. Requests of one caller never pass each other.
    """

    def __init__(self, budget: KvBudget, in_flight_max: int) -> None:
        self._budget = budget
        self._loaded_tokens = budget.tokens
        self._in_flight_max = max(1, in_flight_max)
        self._queue: FairQueue[Request] = FairQueue()
        self._waiting: dict[str, Request] = {}
        self._probes: deque[Request] = deque()
        self._overtaken: dict[str, int] = {}
        self._told: dict[str, tuple[int, float]] = {}  # position and when
        self._look_again_s = 0.0
        self._has_moved = False  # since every place was told

    @property
    def reserved_tokens(self) -> int:
        """Tokens reserved by running sessions."""
        return self._budget.reserved_tokens

    @property
    def kv_tokens_max(self) -> int:
        """Tokens that can be reserved in all."""
        return self._budget.tokens

    @property
    def waiting(self) -> int:
        """Requests that wait, probes left out."""
        return len(self._waiting)

    def limit_kv(self, tokens: int | None) -> None:
        """Set the budget, at most to what it was at load, which is None; what is reserved beyond drains by itself."""
        self._budget.tokens = self._loaded_tokens if tokens is None else min(self._loaded_tokens, tokens)

    def enqueue(self, request: Request) -> None:
        """Wait for a place. Raises ContextTooLong for what never fits, Overloaded when too many wait."""
        if request.probe:
            self._probes.append(request)
            return
        self._budget.check(len(request.prompt_ids), request.new_tokens_max)
        if len(self._waiting) >= WAITING_MAX:
            full = f"{WAITING_MAX} requests wait for this ring already; try again soon"
            raise Overloaded(full, waiting=len(self._waiting))
        if request.request_id in self._waiting:
            raise Overloaded(f"request {request.request_id} waits for this ring already")
        self._waiting[request.request_id] = request
        self._queue.push(request, request.caller, request.caller_weight, request.needed_tokens)
        self._has_moved = True

    def next_admissible(self, running: int) -> Request | None:
        """Take the next request that may start beside `running` others."""
        if self._probes:
            return self._probes.popleft()
        if not self._waiting or running >= self._in_flight_max:
            return None
        passed: list[Request] = []
        for request in self._queue.heads():
            if self._budget.fits(request.needed_tokens):
                for other in passed:
                    self._overtaken[other.request_id] = self._overtaken.get(other.request_id, 0) + 1
                self._queue.take(request)
                self._forget(request.request_id)
                return request
            if self._overtaken.get(request.request_id, 0) >= OVERTAKES_MAX:
                return None
            passed.append(request)
        return None

    def enter(self, number: int, request: Request) -> None:
        """Reserve for a reply that starts, and say so."""
        if not request.probe:
            self._budget.reserve(number, request.needed_tokens)
        request.notify(Admitted(len(request.prompt_ids)))

    def leave(self, number: int) -> None:
        """Give a reply's tokens back."""
        self._budget.release(number)

    def forget(self, request_id: str) -> None:
        """A waiting request is no longer wanted."""
        request = self._waiting.get(request_id)
        if request is not None:
            self._queue.drop(request)
            self._forget(request_id)
        self._probes = deque(probe for probe in self._probes if probe.request_id != request_id)

    def tell_waiting(self, now_s: float, running: int) -> None:
        """Tell every waiting request its place, when it is new or has changed."""
        if not self._has_moved or now_s < self._look_again_s:
            return
        self._has_moved = False
        self._look_again_s = now_s + LOOK_EVERY_S * max(0, len(self._waiting) - LOOK_FREE)
        for position, request in enumerate(self._queue, start=1):
            told_position, told_s = self._told.get(request.request_id, (0, -TELL_EVERY_S))
            if told_position == position:
                continue
            if told_position and now_s - told_s < TELL_EVERY_S:
                self._has_moved = True
                continue
            self._told[request.request_id] = (position, now_s)
            request.notify(Waiting(position, self._reason(request, position, running)))

    def drain(self) -> list[Request]:
        """Empty the queue."""
        waiting = [*self._probes, *self._queue]
        for request in waiting:
            self.forget(request.request_id)
        return waiting

    def _reason(self, request: Request, position: int, running: int) -> str:
        if running >= self._in_flight_max:
            return f"{running} of {_count(self._in_flight_max, 'place is', 'places are')} taken"
        budget = self._budget
        if not budget.fits(request.needed_tokens):
            free = max(0, budget.tokens - budget.reserved_tokens)
            return f"needs {request.needed_tokens:,} tokens of KV; {free:,} of {budget.tokens:,} are free"
        return f"{_count(position - 1, 'request is', 'requests are')} before it"

    def _forget(self, request_id: str) -> None:
        self._waiting.pop(request_id, None)
        self._overtaken.pop(request_id, None)
        self._told.pop(request_id, None)
        self._has_moved = True


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
