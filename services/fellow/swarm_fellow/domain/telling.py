"""Which failures to connect are worth a line in the log. Pure: no clock, no log."""

TELL_AGAIN_S = 60.0  # a leader is dialled every few seconds for ever; the same words are one line a minute


class FailuresTold:
    """What was told last."""

    def __init__(self) -> None:
        self._why = ""
        self._told_s = 0.0

    def is_news(self, why: str, failures: int, now_s: float) -> bool:
        """Whether to tell this failure, which then counts as told. failures: in a row, this one included."""
        if failures > 1 and why == self._why and now_s - self._told_s < TELL_AGAIN_S:
            return False
        self._why, self._told_s = why, now_s
        return True
