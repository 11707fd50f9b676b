"""Why a model cannot be placed, with the names and numbers a person needs. Words only; decides nothing."""

from collections.abc import Sequence

from swarm_core.errors import CapabilityMissing, Conflict, TooFewFellows

from swarm_leader.domain.capabilities import FellowFacts, find_wire_gap
from swarm_leader.domain.planning.ring_needs import RingNeeds, find_lack


def refuse_lack(fellow: FellowFacts, needs: RingNeeds) -> None:
    """Raises CapabilityMissing when a fellow cannot hold a stage of such a ring."""
    lack = find_lack(fellow, needs)
    if lack is not None:
        raise lacking(fellow.name, lack.capability, lack.why)


def lacking(name: str, capability: str, why: str) -> CapabilityMissing:
    """One fellow lacks one capability."""
    return CapabilityMissing(f"fellow {name} lacks {capability}: {why}", fellow=name, capability=capability)


def no_shared_wire(newer: FellowFacts, older: FellowFacts) -> CapabilityMissing:
    """Two fellows whose stages cannot read each other's frames."""
    spoken = " and ".join(f"{fellow.name} reads {_versions(fellow)}" for fellow in (newer, older))
    return CapabilityMissing(
        f"fellows {newer.name} and {older.name} have no wire version in common: {spoken}; upgrade {older.name}",
        fellow=f"{newer.name}, {older.name}",
        capability="wire",
    )


def _versions(fellow: FellowFacts) -> str:
    wire = fellow.capabilities.wire
    return f"{wire.version_min}..{wire.version_max}" if wire else "none"


def busy(fellows: Sequence[FellowFacts]) -> Conflict:
    """Waiting would help: these load other models now."""
    loading = [fellow for fellow in fellows if fellow.busy_with]
    words = "; ".join(f"fellow {fellow.name} is loading {fellow.busy_with}" for fellow in loading)
    return Conflict(
        f"{words}, and one more model would evict it; try again when it is ready",
        fellow=", ".join(fellow.name for fellow in loading),
        loading=", ".join(sorted({fellow.busy_with for fellow in loading})),
    )


def who_lack(names: Sequence[str]) -> str:
    """ "a, b lack"."""
    return f"{', '.join(names)} {'lacks' if len(names) == 1 else 'lack'}"


def too_few(needed: int, names: Sequence[str], what: str) -> TooFewFellows:
    """Fewer fellows than stages. what: "connected", "named", "able"."""
    listed = ", ".join(names) or "none"
    return TooFewFellows(
        f"{needed} stages need {needed} fellows, {len(names)} {'is' if len(names) == 1 else 'are'} {what}: {listed}",
        needed=needed,
        available=len(names),
        names=listed,
    )


def not_enough_able(
    ranked: Sequence[FellowFacts], able: Sequence[FellowFacts], needs: RingNeeds
) -> CapabilityMissing | TooFewFellows:
    """Enough machines but too few that can: name those that cannot, and why. Else: too few machines."""
    serving = [fellow for fellow in ranked if fellow.capabilities.serve]
    if len(serving) < needs.stage_count:
        return too_few(needs.stage_count, sorted(fellow.name for fellow in serving), "connected")
    gap = find_wire_gap(serving)
    if gap is not None:
        return no_shared_wire(*gap)
    lacks = []
    for fellow in sorted((one for one in serving if one not in able), key=lambda one: one.name):
        lack = find_lack(fellow, needs)
        if lack is not None:
            lacks.append((fellow.name, lack))
    words = "; ".join(f"fellow {name} lacks {lack.capability}: {lack.why}" for name, lack in lacks)
    return CapabilityMissing(
        f"{needs.stage_count} stages need {needs.stage_count} fellows that can, {len(able)} can. {words}",
        fellow=", ".join(name for name, _ in lacks),
        capability=lacks[0][1].capability,
        needed=needs.stage_count,
        available=len(able),
    )


def gigabytes(amount: int | None) -> str:
    """An amount of memory for people; None is unknown."""
    return "unknown" if amount is None else f"{amount / 1e9:.2f} GB"
