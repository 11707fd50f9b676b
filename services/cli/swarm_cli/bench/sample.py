"""One request of a benchmark as its client saw it. Pure state."""

from collections.abc import Mapping
from dataclasses import dataclass, field

CUT = "cut"  # not a failure: the benchmark ended before the reply did


@dataclass
class Sample:
    """Times in seconds on one monotonic clock.

    text_s: when each event with text came. ended_s: when it was over, however. failure: why it failed in one word (an
    OpenAI error code, an HTTP status, "connection", "timeout"), "" when it did not, CUT when the benchmark ended first.
    timing: swarm.timing of the last event, empty from other servers.
    """

    sent_s: float
    text_s: list[float] = field(default_factory=list)
    ended_s: float = 0.0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    timing: Mapping[str, float | str | None] = field(default_factory=dict)
    failure: str = ""
    words: str = ""  # of a failure, for people

    @property
    def is_whole(self) -> bool:
        """It came to its end."""
        return not self.failure

    @property
    def tokens(self) -> int:
        """Tokens generated; of a reply that was cut off at least its events."""
        return self.completion_tokens or len(self.text_s)
