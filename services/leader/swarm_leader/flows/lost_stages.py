"""Brings stages that are lost to whoever can hold them, and gives up those that cannot stay where they are."""

import asyncio
from collections.abc import Mapping

from swarm_core.clock import Clock
from swarm_core.errors import FellowLost, StaleEpoch, SwarmError

from swarm_leader.domain import ledger as rules
from swarm_leader.domain.healing.choose import Choice, Way
from swarm_leader.domain.healing.judge import Verdict
from swarm_leader.domain.healing.pace import HealLimits
from swarm_leader.domain.healing.words import say_bringing, say_lost, say_moving
from swarm_leader.domain.records import StageRecord
from swarm_leader.flows.board import Board
from swarm_leader.flows.ending import Ending
from swarm_leader.flows.examining import Examined
from swarm_leader.flows.healing_case import Case, show
from swarm_leader.flows.incidents import Incidents
from swarm_leader.flows.loading_anew import Anew
from swarm_leader.flows.registry import Registry
from swarm_leader.flows.replacing import Replacing
from swarm_leader.flows.tasks import TaskSet

MOVES_MAX = 12  # rounds of one healing in which stages are brought to fellows
GRACE_S = 1.0  # somebody is always waited for this long, however long ago the lost fellow was heard of


class LostStages:
    """Finds lost stages their fellows."""

    def __init__(
        self,
        board: Board,
        registry: Registry,
        replacing: Replacing,
        ending: Ending,
        tasks: TaskSet,
        incidents: Incidents,
        clock: Clock,
        limits: HealLimits,
    ) -> None:
        self._board = board
        self._registry = registry
        self._replacing = replacing
        self._ending = ending
        self._tasks = tasks
        self._incidents = incidents
        self._clock = clock
        self._limits = limits

    async def bring(self, case: Case, verdict: Verdict, examined: Examined) -> Anew | None:
        """Have every lost stage held by somebody, or wait a moment for who may. None: look again.

        Raises StaleEpoch.
        """
        stages = case.placement.record.stages
        for index in verdict.lost:
            if stages[index].state == "loaded":
                await self._take_loss(case, stages[index])
        chosen = self._replacing.choose(case.placement, verdict.lost, case.refused, examined.silent)
        if chosen.choices and case.moves < MOVES_MAX:
            case.moves += 1
            await self._move(case, chosen.choices)
            return None
        words = "; ".join(chosen.missing[index] for index in sorted(chosen.missing))
        words = words or f"it was tried {MOVES_MAX} times"
        if case.moves < MOVES_MAX and (verdict.waits_for or self._is_patient(case, verdict)):
            await self._incidents.note(case, "lost", f"{words}; waits for a fellow")
            await show(self._board, case, f"{case.fault}; waits for a fellow that has room")
            await case.wait(self._limits.poll_s)
            return None
        return Anew(words)

    def refuse(self, case: Case, stage_index: int) -> None:
        """A stage cannot stay on its fellow: it counts as lost, and goes elsewhere."""
        record = case.placement.record
        fellow_id = record.stages[stage_index].fellow_id
        case.refused.add((stage_index, fellow_id))
        fellow = self._registry.get(fellow_id)
        if fellow is not None:
            fellow.drop_stage(record.placement_id)
        self._tasks.start(self._ending.unload_stage(fellow_id, record.placement_id), "unload what goes elsewhere")

    async def _take_loss(self, case: Case, stage: StageRecord) -> None:
        """A stage is lost that was loaded; a machine that is away is named, whatever was heard of it first."""
        name = self._registry.name_of(stage.fellow_id)
        is_connected = self._registry.is_connected(stage.fellow_id)
        case.lost[stage.stage_index] = say_lost(stage, name, is_connected)
        case.away.pop(stage.stage_index, None)
        if not is_connected:
            case.away[stage.stage_index] = stage
        await self._incidents.note_lost(case, stage.stage_index, name)

    async def _move(self, case: Case, choices: Mapping[int, Choice]) -> None:
        """Record who holds these stages from now on, then have them load. What fails is not tried there again."""
        words, reason = say_bringing(choices), say_moving(case.fault, choices)
        moved = {index: choice.stage for index, choice in choices.items()}
        case.has_moved |= any(choice.way is not Way.OWN for choice in choices.values())
        await self._board.save(case.placement, lambda record: rules.move(record, moved, reason), words)
        case.fresh |= set(choices)
        for index, choice in sorted(choices.items()):
            case.away.pop(index, None)
            await self._incidents.note_replacement(case, index, choice.fellow_name, words)
        await asyncio.gather(*(self._load(case, choice) for choice in choices.values()))

    async def _load(self, case: Case, choice: Choice) -> None:
        """Raises StaleEpoch; what else goes wrong is written down."""
        try:
            await self._replacing.bring(case.placement, choice)
        except StaleEpoch:
            raise
        except SwarmError as error:
            if not isinstance(error, FellowLost):  # who is lost and comes back may try again
                case.refused.add((choice.stage.stage_index, choice.stage.fellow_id))
            await self._incidents.note(case, "moving", error.message)

    def _is_patient(self, case: Case, verdict: Verdict) -> bool:
        """Whether somebody to hold the lost stages is still waited for: a while from when they were last heard of."""
        now_s = self._clock.monotonic_s()
        if case.patience_until_s is None or case.patient_for != verdict.lost:
            seen_s = [self._last_seen_s(case, index) for index in verdict.lost]
            case.patient_for = verdict.lost
            case.patience_until_s = max(now_s + min(GRACE_S, self._limits.wait_s), max(seen_s) + self._limits.wait_s)
        return now_s < case.patience_until_s

    def _last_seen_s(self, case: Case, stage_index: int) -> float:
        fellow_id = case.placement.record.stages[stage_index].fellow_id
        fellow = self._registry.get(fellow_id)
        if fellow is None or self._registry.is_connected(fellow_id) or fellow.heartbeat_at_s is None:
            return case.opened_at_s
        return min(case.opened_at_s, fellow.heartbeat_at_s)
