"""How fast places come free, and so when a caller that was turned away should come again. Pure: told the time."""

import math
from collections import deque

WINDOW_S = 60.0
FREED_MAX = 256  # remembered; more in a minute only makes the rate one of less than a minute
RETRY_AFTER_S = (1, 60)
# By then a quarter of those waiting have started: whoever comes again finds room, and not all come in the same second.
SERVED_SHARE = 0.25


class Pace:
    """The rate at which one model's places came free over the last minute."""

    def __init__(self, now_s: float) -> None:
        self._since_s = now_s
        self._freed_s: deque[float] = deque(maxlen=FREED_MAX)

    def note(self, now_s: float) -> None:
        """A place came free."""
        self._freed_s.append(now_s)

    def retry_after_s(self, waiting: int, now_s: float) -> int:
        """Whole seconds, 1 to 60, until a quarter of `waiting` requests should have started."""
        while self._freed_s and now_s - self._freed_s[0] > WINDOW_S:
            self._freed_s.popleft()
        since_s = max(self._since_s, now_s - WINDOW_S)
        if len(self._freed_s) == FREED_MAX:
            since_s = max(since_s, self._freed_s[0])
        # One more than was seen would be at most this slow: without it, a model that freed nothing yet has no rate.
        per_s = max(1, len(self._freed_s)) / max(1e-3, now_s - since_s)
        least, most = RETRY_AFTER_S
        return min(most, max(least, math.ceil(waiting * SERVED_SHARE / per_s)))
