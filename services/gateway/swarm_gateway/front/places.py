"""How much is taken at once: requests in work, and apart from them bodies that are slow to come. Reads nothing.

A request waits for its body in no place of work, so that clients which send slowly hold up nobody. A body is slow once
it has taken SLOW_AFTER_S; then it needs one of few places, and one client address gets only some of those.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from swarm_gateway.problems import too_many

SLOW_AFTER_S = 1.0
ADDRESS_SHARE = 4  # one address gets a fourth of the places for slow bodies
BODIES_KEPT = 16  # bodies of the largest size that may be on their way at once; more smaller ones


class Places:
    """Everything in work now. on_change: told how many requests are."""

    def __init__(
        self, requests_max: int, uploads_max: int, body_bytes_max: int, on_change: Callable[[int], None]
    ) -> None:
        self._requests_max = requests_max
        self._uploads_max = uploads_max
        self._address_max = max(1, uploads_max // ADDRESS_SHARE)
        self._bytes_max = body_bytes_max * BODIES_KEPT
        self._on_change = on_change
        self._working = 0
        self._slow: Counter[str] = Counter()
        self._bytes = 0

    @contextmanager
    def place(self, address: str, is_always: bool) -> Iterator["Place"]:
        """A place of work for one request. is_always: it gets one also when all are taken.

        Raises HttpProblem 429.
        """
        place = Place(self, address, is_always)
        self.begin(is_always)
        try:
            yield place
        finally:
            if not place.is_uploading:
                self.end()

    def begin(self, is_always: bool) -> None:
        """One more is in work. Raises HttpProblem 429."""
        if self._working >= self._requests_max and not is_always:
            words = f"{self._working} requests are in work; no more are taken (SWARM_GATEWAY_REQUESTS_MAX)"
            raise too_many(words)
        self._working += 1
        self._on_change(self._working)

    def end(self) -> None:
        """One less is in work."""
        self._working -= 1
        self._on_change(self._working)

    def grow(self, byte_count: int) -> None:
        """Bodies on their way have grown. Raises HttpProblem 429."""
        if self._bytes + byte_count > self._bytes_max:
            raise too_many(f"bodies of {self._bytes} bytes are on their way; no more are taken")
        self._bytes += byte_count

    def slow_down(self, address: str) -> None:
        """One more body is slow. Raises HttpProblem 429."""
        if self._slow.total() >= self._uploads_max or self._slow[address] >= self._address_max:
            words = "the body comes too slowly while many others do (SWARM_GATEWAY_UPLOADS_MAX)"
            raise too_many(words)
        self._slow[address] += 1

    def arrived(self, address: str, byte_count: int, was_slow: bool) -> None:
        """A body is whole, or will never be."""
        self._bytes -= byte_count
        if was_slow:
            self._slow[address] -= 1
            if not self._slow[address]:
                del self._slow[address]


class Place:
    """One request's place."""

    def __init__(self, places: Places, address: str, is_always: bool) -> None:
        self._places = places
        self._address = address
        self._is_always = is_always
        self.is_uploading = False

    @contextmanager
    def uploading(self) -> Iterator["Upload"]:
        """Give the place of work back while the body comes. Raises HttpProblem 429 when none is free afterwards."""
        upload = Upload(self._places, self._address)
        self._places.end()
        self.is_uploading = True
        try:
            yield upload
        finally:
            upload.end()
        self._places.begin(self._is_always)
        self.is_uploading = False


class Upload:
    """One body on its way."""

    def __init__(self, places: Places, address: str) -> None:
        self._places = places
        self._address = address
        self._bytes = 0
        self._is_slow = False

    def grow(self, byte_count: int) -> None:
        """More of it has come. Raises HttpProblem 429 when too much is on its way."""
        self._places.grow(byte_count)
        self._bytes += byte_count

    def slow_down(self) -> None:
        """It has taken SLOW_AFTER_S. Raises HttpProblem 429 when too many have."""
        self._places.slow_down(self._address)
        self._is_slow = True

    def end(self) -> None:
        """It is whole, or will never be."""
        self._places.arrived(self._address, self._bytes, self._is_slow)
