"""Which loaded models make room for one more. Pure: it chooses, it ends nothing."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Occupant:
    """One loaded placement. order grows with every start, so the smallest is the oldest."""

    placement_id: str
    order: int


def choose_evicted(occupants: Iterable[Occupant], models_max: int) -> list[str]:
    """Placements to end, oldest first, so that one more stays within models_max (at least 1)."""
    assert models_max >= 1
    by_age = sorted(occupants, key=lambda occupant: occupant.order)
    surplus = len(by_age) + 1 - models_max
    return [occupant.placement_id for occupant in by_age[: max(surplus, 0)]]
