"""Ends a text before the first stop string, wherever the pieces it arrives in are cut. Pure: no tokens."""

from collections.abc import Sequence

from swarm_core.errors import BadRequest


class StopMatcher:
    """Passes text on as soon as it can no longer belong to a stop string.

    The text ends at the stop string that is complete first (the longer one of two that end together), so what comes
    out depends on the text alone, not on how it was cut.
    """

    def __init__(self, stop: Sequence[str]) -> None:
        """stop: none is allowed. Raises BadRequest for an empty string among them."""
        if any(not text for text in stop):
            raise BadRequest("a stop text is empty", field="stop")
        self._stop = tuple(stop)
        self._held = ""
        self._stopped = False

    def push(self, text: str) -> tuple[str, bool]:
        """More text; what may be shown now, and whether a stop string came. Nothing is shown after one."""
        if self._stopped:
            return "", True
        text = self._held + text
        found = [(at + len(stop), at) for stop in self._stop if (at := text.find(stop)) >= 0]
        if found:
            self._stopped, self._held = True, ""
            return text[: min(found)[1]], True
        keep = self._unsafe_length(text)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep], False

    def finish(self) -> str:
        """The text ended: what was held back. Empty after a stop string."""
        held, self._held = self._held, ""
        return held

    def _unsafe_length(self, text: str) -> int:
        """Length of the longest end of `text` that begins a stop string."""
        longest = max((len(stop) for stop in self._stop), default=1) - 1
        for length in range(min(longest, len(text)), 0, -1):
            ending = text[len(text) - length :]
            if any(stop.startswith(ending) for stop in self._stop):
                return length
        return 0
