"""Which replies of a model run and which wait: callers take turns by weight, both are bounded. No clock, no tasks."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from swarm_core.errors import Overloaded
from swarm_core.fair_queue import FairQueue

# A caller may wait with this many requests for every place it leaves free beyond one, so that alone it gets three
# quarters of the queue, and the last place only goes to a caller that has none (Choudhury and Hahne 1998).
CALLER_PER_FREE = 3


@dataclass(frozen=True, eq=False)
class _Ask:
    request_id: str
    caller: str


class AdmissionQueue:
    """Replies of one model. running never exceeds running_max, waiting never waiting_max.

    Every request costs its caller the same, whatever its size: what is shared here is places, and how long one is held
    is decided by the length of the reply, which nobody knows yet. Prompt tokens are charged where they compete, at
    stage 0.
    """

    def __init__(self, waiting_max: int) -> None:
        self._waiting_max = waiting_max
        self._running_max = 0
        self._running: set[str] = set()
        self._asks: dict[str, _Ask] = {}
        self._line: FairQueue[_Ask] = FairQueue()
        self._waiting_of: Counter[str] = Counter()
        self._positions: dict[str, int] | None = None

    @property
    def running(self) -> int:
        """Replies that run now."""
        return len(self._running)

    @property
    def running_max(self) -> int:
        """Replies that may run at once."""
        return self._running_max

    @property
    def waiting(self) -> int:
        """Replies that wait now."""
        return len(self._asks)

    def set_running_max(self, running_max: int) -> list[str]:
        """A ring takes this many at once (0: none). Returns the requests that may start now; those running go on."""
        self._running_max = running_max
        return self._admit()

    def ask(self, request_id: str, caller: str = "", weight: float = 1.0, retry_after_s: int = 0) -> list[str]:
        """Queue a request. Returns the requests that may start now, this one among them when there is room.

        caller: whose it is; everyone without a name is one caller. weight: the caller's share against others'.
        Raises Overloaded with the numbers, and with retry_after_s, when as many wait as may, in all or of one caller.
        """
        if len(self._running) >= self._running_max:
            self._check_room(caller, retry_after_s)
        ask = self._asks[request_id] = _Ask(request_id, caller)
        self._line.push(ask, caller, weight)
        self._waiting_of[caller] += 1
        return self._admit()

    def release(self, request_id: str) -> list[str]:
        """A request is over, whether it ran or waited. Returns the requests that may start now."""
        self._running.discard(request_id)
        ask = self._asks.get(request_id)
        if ask is not None:
            self._line.drop(ask)
            self._leave_line(ask)
        return self._admit()

    def positions(self) -> Mapping[str, int]:
        """Where each waiting request stands: 1 starts next. Newcomers of callers that had less may go before others."""
        if self._positions is None:
            self._positions = {ask.request_id: place for place, ask in enumerate(self._line, start=1)}
        return self._positions

    def _check_room(self, caller: str, retry_after_s: int) -> None:
        """Refuse a request that finds no place to wait in. Raises Overloaded."""
        mine, free = self._waiting_of[caller], self._waiting_max - self.waiting
        if free <= 0:
            words = f"{self.running} replies run and {self.waiting} wait for this model, which is as many as may"
        elif mine and mine >= CALLER_PER_FREE * (free - 1):
            words = f"{mine} replies of this caller wait for this model; the {free} places left are for others"
        else:
            return
        raise Overloaded(
            f"{words}; try again soon",
            running=self.running,
            waiting=self.waiting,
            waiting_max=self._waiting_max,
            caller_waiting=mine,
            retry_after_s=retry_after_s,
        )

    def _admit(self) -> list[str]:
        self._positions = None
        admitted: list[str] = []
        while self._asks and len(self._running) < self._running_max:
            ask = self._line.heads()[0]
            self._line.take(ask)
            self._leave_line(ask)
            self._running.add(ask.request_id)
            admitted.append(ask.request_id)
        return admitted

    def _leave_line(self, ask: _Ask) -> None:
        del self._asks[ask.request_id]
        self._waiting_of[ask.caller] -= 1
        if not self._waiting_of[ask.caller]:
            del self._waiting_of[ask.caller]
