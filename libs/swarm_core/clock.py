"""Time as something handed in, so that a test can own it."""

import time
from typing import Protocol


class Clock(Protocol):
    """Two readings that are never mixed."""

    def monotonic_s(self) -> float:
        """Seconds that only grow; for leases, deadlines and durations."""

    def unix_s(self) -> float:
        """Wall time; for people and records, never for arithmetic between machines."""


class SystemClock:
    """The machine's own clocks."""

    def monotonic_s(self) -> float:
        return time.monotonic()

    def unix_s(self) -> float:
        return time.time()


class ManualClock:
    """A clock a test moves. Starts at a random offset on purpose when the test passes one."""

    def __init__(self, monotonic_s: float = 1000.0, unix_s: float = 1.7e9) -> None:
        self._monotonic_s = monotonic_s
        self._unix_s = unix_s

    def advance(self, seconds: float) -> None:
        """Move both readings forward."""
        self._monotonic_s += seconds
        self._unix_s += seconds

    def monotonic_s(self) -> float:
        return self._monotonic_s

    def unix_s(self) -> float:
        return self._unix_s
