"""Calls that run now, by whom they were made: bounded for each, and ended together. No gRPC."""

from collections.abc import Callable

from swarm_core.errors import Overloaded, SwarmError

End = Callable[[SwarmError], None]


class OpenCalls:
    """Every call of somebody known."""

    def __init__(self) -> None:
        self._calls: dict[str, dict[object, End]] = {}

    def begin(self, owner: str, calls_max: int, end: End) -> Callable[[], None]:
        """A call begins; `end` ends it. Returns what to call when it is over. Raises Overloaded beyond calls_max."""
        calls = self._calls.setdefault(owner, {})
        if len(calls) >= calls_max:
            raise Overloaded(f"{len(calls)} calls of this caller run, which is the most at once", running=len(calls))
        key = object()
        calls[key] = end

        def over() -> None:
            calls.pop(key, None)
            if not calls and self._calls.get(owner) is calls:
                del self._calls[owner]

        return over

    def end_all(self, owner: str, why: SwarmError) -> None:
        """Nothing of this caller runs on."""
        for end in list(self._calls.get(owner, {}).values()):
            end(why)

    def count(self, owner: str) -> int:
        """How many run."""
        return len(self._calls.get(owner, {}))
