"""Where covers go: the riskiest stages first, hot while memory lasts, and what stands stays. Pure; sends nothing."""

from collections.abc import Iterable, Sequence

from swarm_leader.domain.covers.facts import CoverMode, CoverPlan, StageKey, StageToCover, Standby

# A stage without a hot cover must be riskier by so much before another one's is ended for it.
STICKY_RISK = 0.25


def plan_covers(stages: Iterable[StageToCover], standbys: Sequence[Standby], mode: CoverMode) -> CoverPlan:
    """At most one cover a stage, each on a fellow of its ring's pools that can hold it, none beyond its free memory.

    Planned anew from all facts each time, so that it needs no history; a cover that stands is preferred where it is.
    Planning again with the plan carried out gives the same plan. The same facts give it in whatever order they come.
    """
    if mode is CoverMode.OFF:
        return CoverPlan({})
    budget = _Budget(standbys)
    ordered = sorted(stages, key=lambda stage: (-_urgency(stage, standbys), stage.key))
    holders: dict[StageKey, tuple[str, bool]] = {}
    if mode is not CoverMode.WARM:
        for stage in ordered:
            fellow_id = budget.place_hot(stage)
            if fellow_id:
                holders[stage.key] = (fellow_id, True)
    if mode is not CoverMode.HOT:
        for stage in ordered:
            if stage.key not in holders and (fellow_id := budget.place_warm(stage)):
                holders[stage.key] = (fellow_id, False)
    return CoverPlan(holders)


def _urgency(stage: StageToCover, standbys: Sequence[Standby]) -> float:
    is_hot = any(one.covers.get(stage.key) and one.can_hold(stage, is_hot=True) for one in standbys)
    return stage.risk + (STICKY_RISK if is_hot else 0.0)


class _Budget:
    """What is left of each fellow while covers are placed."""

    def __init__(self, standbys: Sequence[Standby]) -> None:
        self._standbys = sorted(standbys, key=lambda one: one.fellow_id)
        self._memory = {one.fellow_id: one.free_bytes for one in standbys}
        self._disk = {one.fellow_id: one.disk_free_bytes for one in standbys}
        self._placed = dict.fromkeys(self._memory, 0)

    def place_hot(self, stage: StageToCover) -> str:
        """Whoever holds it already, else the idlest and then the roomiest that has room; "" when nobody has."""
        hot = [one for one in self._standbys if one.can_hold(stage, is_hot=True)]
        able = [one for one in hot if self._has_memory(one, stage.hot_bytes)]
        # Warm there before fetching nothing again elsewhere; a fellow without a stage of its own before one with.
        best = min(
            able,
            key=lambda one: (
                not one.covers.get(stage.key),
                stage.key not in one.covers,
                one.stages_held,
                -(self._memory[one.fellow_id] or 0),
                one.fellow_id,
            ),
            default=None,
        )
        if best is None:
            return ""
        self._memory[best.fellow_id] = (self._memory[best.fellow_id] or 0) - stage.hot_bytes
        self._placed[best.fellow_id] += 1
        return best.fellow_id

    def place_warm(self, stage: StageToCover) -> str:
        """Whoever has it already, else the one with the fewest covers whose disk has room; "" when nobody has."""
        able = [one for one in self._standbys if one.can_hold(stage, is_hot=False) and self._has_disk(one, stage)]
        best = min(
            able,
            key=lambda one: (stage.key not in one.covers, self._placed[one.fellow_id], one.fellow_id),
            default=None,
        )
        if best is None:
            return ""
        disk = self._disk[best.fellow_id]
        if disk is not None and stage.key not in best.covers:
            self._disk[best.fellow_id] = disk - stage.warm_bytes
        self._placed[best.fellow_id] += 1
        return best.fellow_id

    def _has_memory(self, one: Standby, needed_bytes: int) -> bool:
        free_bytes = self._memory[one.fellow_id]
        return free_bytes is not None and needed_bytes <= free_bytes

    def _has_disk(self, one: Standby, stage: StageToCover) -> bool:
        disk = self._disk[one.fellow_id]
        return disk is None or stage.key in one.covers or stage.warm_bytes <= disk
