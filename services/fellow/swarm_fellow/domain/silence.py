"""Whether a process that does not answer is frozen, or only kept from running by a busy machine. Pure: looks in."""

from dataclasses import dataclass
from enum import Enum

from swarm_fellow.domain.stillness import MOVED_S

SILENT_S = 1.0  # a status never waits for the engine, so a process that runs answers in milliseconds
SILENT_MAX_S = 3.0  # with the 6 s in which a silent link is noticed, a frozen stage is found within 10 s all the same
LOOK_MAX_S = 0.5  # of the time between two looks, what counts: for the rest we did not run ourselves


class ProcessState(Enum):
    """What the system says of a process."""

    HELD_UP = "held up"  # it would run: it waits for a processor, or for pages from a disk
    ASLEEP = "asleep"  # it waits for something to happen
    STOPPED = "stopped"  # by a signal, as a debugger or Ctrl-Z does
    GONE = "gone"


@dataclass(frozen=True)
class Vitality:
    """One look at a process. cpu_s: processor time it has used in all, in seconds; None when it is gone."""

    state: ProcessState
    cpu_s: float | None = None


class Silence:
    """The silence of one process. from_s: when it was asked, monotonic. max_s: no silence is longer."""

    def __init__(self, from_s: float, seen: Vitality, max_s: float = SILENT_MAX_S) -> None:
        self._from_s = from_s
        self._moved_s = from_s
        self._looked_s = from_s
        self._cpu_s = seen.cpu_s or 0.0
        self._max_s = min(max_s, SILENT_MAX_S)

    def look(self, now_s: float, seen: Vitality) -> str:
        """Why it answers no more, in words; "" while it may be about to.

        One that is stopped or gone will not. One that neither computes nor wants to for a second is frozen; one that
        does gets until max_s.
        """
        if seen.state in (ProcessState.STOPPED, ProcessState.GONE):
            return f"does not answer: it is {seen.state.value}"
        missed_s = max(0.0, now_s - self._looked_s - LOOK_MAX_S)
        self._from_s, self._moved_s, self._looked_s = self._from_s + missed_s, self._moved_s + missed_s, now_s
        cpu_s = seen.cpu_s or 0.0
        if seen.state is ProcessState.HELD_UP or cpu_s >= self._cpu_s + MOVED_S:
            self._moved_s, self._cpu_s = now_s, cpu_s
        waited_s = now_s - self._from_s
        if now_s - self._moved_s >= SILENT_S or waited_s >= self._max_s:
            return f"did not answer within {waited_s:.1f} s"
        return ""
