"""What a plan of covers knows and says. Plain facts; bytes are bytes, None is unknown."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from swarm_leader.domain.records import MAIN_POOL

StageKey = tuple[str, int]  # placement and stage


class CoverMode(StrEnum):
    """What may be planned; the words of SWARM_COVERS."""

    AUTO = "auto"
    HOT = "hot"
    WARM = "warm"
    OFF = "off"


@dataclass(frozen=True)
class StageToCover:
    """One stage of a ready placement.

    risk: that its fellow is lost, 0 to 1. hot_bytes: all that it would take in memory. warm_bytes: of its files.
    pools: those its ring lies in; no machine of another pool holds anything of it.
    """

    key: StageKey
    risk: float
    hot_bytes: int
    warm_bytes: int
    pools: frozenset[str] = frozenset({MAIN_POOL})


@dataclass(frozen=True)
class Standby:
    """A fellow that may hold covers.

    free_bytes: memory for hot covers, that of the covers it holds counted as free and the reserve taken off; None is
    unknown, and then none is hot there. disk_free_bytes: None is unknown, and then the fellow itself refuses.
    hot, warm: stages it can hold so. covers: what it holds, and whether it is hot. stages_held: of rings.
    """

    fellow_id: str
    free_bytes: int | None
    disk_free_bytes: int | None = None
    hot: frozenset[StageKey] = frozenset()
    warm: frozenset[StageKey] = frozenset()
    covers: Mapping[StageKey, bool] = field(default_factory=dict)
    stages_held: int = 0
    pool: str = MAIN_POOL

    def can_hold(self, stage: StageToCover, is_hot: bool) -> bool:
        """Whether it may hold this stage, and is able to, room aside."""
        return self.pool in stage.pools and stage.key in (self.hot if is_hot else self.warm)


@dataclass(frozen=True)
class CoverPlan:
    """Where each covered stage is held, and whether hot. Stages that are not in it have no cover."""

    holders: Mapping[StageKey, tuple[str, bool]]
