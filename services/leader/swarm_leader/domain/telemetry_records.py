"""What is kept of how machines did: figures by minute and hour, and what happened. Plain facts, and who keeps them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

MINUTE_S, HOUR_S = 60, 3600
MINUTES_KEPT_S = 7 * 24 * HOUR_S
HOURS_KEPT_S = 90 * 24 * HOUR_S
EVENTS_KEPT_S = 90 * 24 * HOUR_S
EVENTS_MAX = 20_000  # of all pools; a machine that comes and goes must not fill the disk
POINTS_MAX = 10_080  # of one answer: the minutes of 7 days


@dataclass(frozen=True)
class MetricRow:
    """Figures of a pool (fellow_id "") or of one machine, over one minute or hour.

    resolution_s: MINUTE_S or HOUR_S. at_s: Unix seconds at which it begins. figures: by name, the known ones alone.
    """

    resolution_s: int
    at_s: int
    pool: str
    fellow_id: str
    figures: Mapping[str, float]


@dataclass(frozen=True)
class NodeEvent:
    """Something that happened. sequence: 0 before it is kept. fellow_id: "" is the pool as a whole."""

    at_s: float
    pool: str
    fellow_id: str
    fellow_name: str
    kind: str
    words: str
    sequence: int = 0


class MetricStore(Protocol):
    """Figures over time and events."""

    async def add(self, rows: Sequence[MetricRow]) -> None:
        """Insert or replace; all or nothing, durable."""

    async def history(
        self, pool: str, fellow_id: str, resolution_s: int, from_s: int, to_s: int
    ) -> list[tuple[int, Mapping[str, float]]]:
        """When and what, oldest first, the newest POINTS_MAX of from_s <= at_s < to_s."""

    async def roll_up(self, hour_s: int) -> None:
        """Write the hour that begins then as the means of its minutes; again is harmless."""

    async def newest(self, resolution_s: int) -> int | None:
        """When the newest row of this resolution begins."""

    async def oldest(self, resolution_s: int) -> int | None:
        """When the oldest row of this resolution begins."""

    async def prune(self, now_s: int) -> None:
        """Forget what is older than it is kept, and the oldest events beyond EVENTS_MAX."""

    async def add_events(self, events: Sequence[NodeEvent]) -> None:
        """Append, in order; all or nothing, durable."""

    async def events(self, pool: str, limit: int, before_sequence: int = 0, fellow_id: str = "") -> list[NodeEvent]:
        """Newest first. before_sequence, fellow_id: 0 and "" are all."""
