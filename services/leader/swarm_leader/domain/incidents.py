"""What is remembered of one fault of a placement, and of what was done about it. Plain facts; decides nothing."""

from dataclasses import dataclass, replace
from enum import StrEnum

LOG_MAX = 50  # lines of one incident; what comes later replaces the last one


class IncidentKind(StrEnum):
    """What was first heard of it."""

    CRASH = "crash"  # a stage's process ended, or is no longer held
    LINK = "link"  # a link of the ring broke
    LOST = "lost"  # a machine is gone
    STALL = "stall"  # a reply stood still though every link was up
    RESTART = "restart"  # the leader started and did not find the ring as it should be
    DRAIN = "drain"  # a person wants a machine emptied
    WAY = "way"  # nothing broke: stages that were relayed reach each other directly


class Outcome(StrEnum):
    """How it ended."""

    OPEN = ""
    RECOVERED = "recovered"  # the same fellows serve again
    MOVED = "moved"  # a stage is on another fellow now
    LOADED_ANEW = "loaded anew"  # by a fresh plan
    FAILED = "failed"  # given up
    ENDED = "ended"  # the model was unloaded, or loaded anew by a person, meanwhile


@dataclass(frozen=True)
class IncidentStep:
    """One line of what was done. at_s: Unix seconds."""

    at_s: float
    what: str


@dataclass(frozen=True)
class IncidentRecord:
    """One fault of a placement. epoch: when it was noticed. stages: those that were lost, whatever became of them.

    lost, replacements: names of fellows, in the order of `stages`; a replacement that is not known yet is "". step:
    where it stands, in one word. detected_ms: from the last sign of life to the opening, None where there is none to
    count from. recovered_ms: from the opening until the model served again. Both are of the leader's monotonic clock.
    """

    incident_id: str
    placement_id: str
    model_id: str
    epoch: int
    kind: IncidentKind
    opened_s: float
    stages: tuple[int, ...] = ()
    lost: tuple[str, ...] = ()
    replacements: tuple[str, ...] = ()
    step: str = "open"
    log: tuple[IncidentStep, ...] = ()
    closed_s: float | None = None
    outcome: Outcome = Outcome.OPEN
    detected_ms: float | None = None
    recovered_ms: float | None = None

    @property
    def is_open(self) -> bool:
        """Whether something is still to be done about it."""
        return self.closed_s is None

    def noted(self, step: str, what: str, at_s: float) -> "IncidentRecord":
        """The record at this step, with one line more."""
        return replace(self, step=step, log=(*self.log[: LOG_MAX - 1], IncidentStep(at_s, what)))

    def with_lost(self, stage_index: int, fellow_name: str) -> "IncidentRecord":
        """The record with one more stage that is lost; of one that was lost before, with whoever lost it last."""
        if stage_index not in self.stages:
            return replace(
                self,
                stages=(*self.stages, stage_index),
                lost=(*self.lost, fellow_name),
                replacements=(*self.replacements, ""),
            )
        place = self.stages.index(stage_index)
        return replace(
            self,
            lost=(*self.lost[:place], fellow_name, *self.lost[place + 1 :]),
            replacements=(*self.replacements[:place], "", *self.replacements[place + 1 :]),
        )

    def with_replacement(self, stage_index: int, fellow_name: str) -> "IncidentRecord":
        """The record with who holds a lost stage now."""
        place = self.stages.index(stage_index)
        return replace(self, replacements=(*self.replacements[:place], fellow_name, *self.replacements[place + 1 :]))

    def closed(self, outcome: Outcome, what: str, at_s: float) -> "IncidentRecord":
        """The record once it is over."""
        return replace(self.noted("closed", what, at_s), closed_s=at_s, outcome=outcome)
