"""Which replies of a model run and which wait: first come, first served, both bounded. No clock, no tasks."""

from collections import deque

from swarm_core.errors import Overloaded


class AdmissionQueue:
    """Replies of one model. running never exceeds running_max, waiting never waiting_max."""

    def __init__(self, waiting_max: int) -> None:
        self._waiting_max = waiting_max
        self._running_max = 0
        self._running: set[str] = set()
        self._waiting: deque[str] = deque()

    @property
    def running(self) -> int:
        """Replies that run now."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Replies that wait now."""
        return len(self._waiting)

    def set_running_max(self, running_max: int) -> list[str]:
        """A ring takes this many at once (0: none). Returns the requests that may start now; those running go on."""
        self._running_max = running_max
        return self._admit()

    def ask(self, request_id: str) -> list[str]:
        """Queue a request. Returns the requests that may start now, this one among them when there is room.

        Raises Overloaded with the numbers when as many wait as may.
        """
        if len(self._running) >= self._running_max and len(self._waiting) >= self._waiting_max:
            raise Overloaded(
                f"{self.running} replies run and {self.waiting} wait for this model, which is as many as may; "
                "try again soon",
                running=self.running,
                waiting=self.waiting,
                waiting_max=self._waiting_max,
            )
        self._waiting.append(request_id)
        return self._admit()

    def release(self, request_id: str) -> list[str]:
        """A request is over, whether it ran or waited. Returns the requests that may start now."""
        self._running.discard(request_id)
        if request_id in self._waiting:
            self._waiting.remove(request_id)
        return self._admit()

    def _admit(self) -> list[str]:
        admitted: list[str] = []
        while self._waiting and len(self._running) < self._running_max:
            request_id = self._waiting.popleft()
            self._running.add(request_id)
            admitted.append(request_id)
        return admitted
