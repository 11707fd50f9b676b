"""Which machine, if any, should be taken out of service. Pure: it proposes; whoever asked acts, or not.

Guarded on purpose: a policy that is wrong about one machine must not empty a fleet.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

BAD_BAND = "F"
BAD_S = 300.0  # a machine must have been bad for this long
COOLDOWN_S = 1800.0  # between two proposals, whatever became of the first
HEALTHY = ("A", "B", "C")


class Replace(StrEnum):
    """What is done about a machine that has been bad for long."""

    OFF = "off"
    SUGGEST = "suggest"
    ON = "on"


@dataclass(frozen=True)
class Candidate:
    """A machine as the policy sees it. band: "" is not known. since_s: when it came to its band."""

    fellow_id: str
    name: str
    band: str
    since_s: float
    score: float
    is_connected: bool
    is_draining: bool
    why: str = ""


@dataclass(frozen=True)
class Proposal:
    """Drain this machine. words: for people."""

    fellow_id: str
    name: str
    words: str


def propose(machines: Sequence[Candidate], now_s: float, proposed_at_s: float | None) -> Proposal | None:
    """The worst machine that has been bad for long; None when a guard holds.

    Guards: a band it has been in for BAD_S; COOLDOWN_S since the last proposal (proposed_at_s); never more than one
    machine out of service at once; never the last that is in service, nor without a healthy one beside it. Machines
    that are away are not proposed: what they held is moved anyway.
    """
    if proposed_at_s is not None and now_s - proposed_at_s < COOLDOWN_S:
        return None
    if any(machine.is_draining for machine in machines):
        return None
    bad = [
        machine
        for machine in machines
        if machine.is_connected and machine.band == BAD_BAND and now_s - machine.since_s >= BAD_S
    ]
    if not bad:
        return None
    worst = min(bad, key=lambda machine: (machine.score, machine.name))
    others = [machine for machine in machines if machine is not worst and machine.is_connected]
    if not any(machine.band in HEALTHY for machine in others):
        return None
    return Proposal(
        worst.fellow_id,
        worst.name,
        f"drain {worst.name}: graded {worst.band} ({worst.score:.0f} of 100) for {(now_s - worst.since_s) / 60:.0f} min"
        + (f"; {worst.why}" if worst.why else ""),
    )
