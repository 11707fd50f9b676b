"""Which stages of a ring are lost, and whom to wait for. Pure: facts in, a verdict out. No clock, no I/O."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class StageFacts:
    """What is known of one stage and of the fellow that is to hold it.

    is_connected: its control link is open. is_lease_running: it may still come back. is_returning: the leader started
    and has not heard of it yet. is_loaded: it was loaded once, by the record. is_held: the fellow says that it holds
    it. is_alive: what it answered to a CHECK; None when it was not asked. is_complained_of: a neighbour's link to it is
    broken.
    """

    stage_index: int
    fellow_id: str
    fellow_name: str
    is_connected: bool
    is_lease_running: bool
    is_returning: bool = False
    is_loaded: bool = True
    is_held: bool = True
    is_alive: bool | None = None
    is_complained_of: bool = False


@dataclass(frozen=True)
class Verdict:
    """lost: stages that must be held by somebody anew. waits_for: stages whose fellows may come back with them."""

    lost: tuple[int, ...] = ()
    waits_for: tuple[int, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Every stage is held: the ring needs no more than to be wired."""
        return not self.lost and not self.waits_for


def judge(facts: Sequence[StageFacts]) -> Verdict:
    """Judge every stage by itself.

    A stage of a connected fellow is lost when it is not held or does not answer. A fellow that is away has its whole
    lease to come back, unless it holds nothing worth waiting for, or a neighbour's link to it broke too: a machine that
    is gone for the leader and for its neighbour is gone. Right after a start of the leader every fellow is away for it,
    and only the lease counts.
    """
    return Verdict(
        lost=tuple(one.stage_index for one in facts if _is_lost(one)),
        waits_for=tuple(one.stage_index for one in facts if not one.is_connected and not _is_lost(one)),
    )


def _is_lost(stage: StageFacts) -> bool:
    if stage.is_connected:
        return not stage.is_held or stage.is_alive is False
    if not stage.is_lease_running or not stage.is_loaded:
        return True
    return stage.is_complained_of and not stage.is_returning
