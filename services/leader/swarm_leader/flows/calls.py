"""Calls that run now, by whom they were made: bounded for each, and ended together. No gRPC."""

from collections.abc import Callable

from swarm_core.errors import Overloaded, SwarmError

End = Callable[[SwarmError], None]
Ends = dict[str, dict[object, End]]  # by owner


class OpenCalls:
    """Every call of somebody known."""

    def __init__(self) -> None:
        self._calls: Ends = {}
        self._followers: Ends = {}

    def begin(self, owner: str, calls_max: int, end: End) -> Callable[[], None]:
        """A call begins; `end` ends it. Returns what to call when it is over. Raises Overloaded beyond calls_max."""
        running = self.count(owner)
        if running >= calls_max:
            raise Overloaded(f"{running} calls of this caller run, which is the most at once", running=running)
        return _add(self._calls, owner, end)

    def follow(self, owner: str, end: End) -> Callable[[], None]:
        """Something else that ends with the caller; it is no call and has no bound. As `begin`."""
        return _add(self._followers, owner, end)

    def end_all(self, owner: str, why: SwarmError) -> None:
        """Nothing of this caller runs on."""
        for ends in (self._calls, self._followers):
            for end in list(ends.get(owner, {}).values()):
                end(why)

    def count(self, owner: str) -> int:
        """How many run."""
        return len(self._calls.get(owner, {}))


def _add(ends: Ends, owner: str, end: End) -> Callable[[], None]:
    """Add one; returns what takes it away again."""
    own, key = ends.setdefault(owner, {}), object()
    own[key] = end

    def over() -> None:
        own.pop(key, None)
        if not own and ends.get(owner) is own:
            del ends[owner]

    return over
