"""For how long a process has computed nothing. Pure: readings in, seconds out."""

MOVED_S = 0.01  # the kernel counts a process's time in hundredths


class Stillness:
    """now_s: monotonic. cpu_s: processor time the process has used in all, in seconds; None when it is gone."""

    def __init__(self, now_s: float, cpu_s: float | None) -> None:
        self._since_s = now_s
        self._cpu_s = cpu_s or 0.0

    def look(self, now_s: float, cpu_s: float | None) -> float:
        """Seconds without any computing until now. One that is gone counts as busy: how it ended says more."""
        if cpu_s is None or cpu_s >= self._cpu_s + MOVED_S:
            self._since_s, self._cpu_s = now_s, cpu_s or 0.0
        return now_s - self._since_s
