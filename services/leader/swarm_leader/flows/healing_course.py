"""What is done about one fault, step by step, until the ring serves or nothing helps: each look decides the next."""

import asyncio

from swarm_leader.domain.healing.judge import judge
from swarm_leader.domain.healing.pace import CRASHES_MAX, CRASHES_S, CrashCount, HealLimits
from swarm_leader.domain.healing.words import say_away
from swarm_leader.domain.incidents import IncidentKind, Outcome
from swarm_leader.flows.arrivals import Arrivals
from swarm_leader.flows.board import Board
from swarm_leader.flows.examining import Examining
from swarm_leader.flows.giving_up import GivingUp
from swarm_leader.flows.healing_case import Case, show
from swarm_leader.flows.incidents import Incidents
from swarm_leader.flows.loading_anew import Anew, LoadingAnew
from swarm_leader.flows.lost_stages import LostStages
from swarm_leader.flows.ring_up import RingUp


class HealingCourse:
    """Heals cases. Whatever it does returns how a case ended, or None when it was given up for now."""

    def __init__(
        self,
        board: Board,
        examining: Examining,
        lost_stages: LostStages,
        arrivals: Arrivals,
        ring_up: RingUp,
        loading_anew: LoadingAnew,
        giving_up: GivingUp,
        incidents: Incidents,
        limits: HealLimits,
    ) -> None:
        self._board = board
        self._examining = examining
        self._lost_stages = lost_stages
        self._arrivals = arrivals
        self._ring_up = ring_up
        self._loading_anew = loading_anew
        self._giving_up = giving_up
        self._incidents = incidents
        self._limits = limits
        self._crashes = CrashCount()

    async def heal(self, case: Case) -> Outcome | None:
        """Look at the ring and do what is next. Raises StaleEpoch when somebody else decided otherwise meanwhile."""
        if case.kind is IncidentKind.CRASH and self._crashes.is_too_often(case.model_id, case.opened_at_s):
            await self._giving_up.give_up(case, f"that was the {CRASHES_MAX}th time within {CRASHES_S:g} s")
            return None
        if case.kind is not IncidentKind.RESTART:
            await self._incidents.open(case)
            await show(self._board, case, case.fault)
        try:
            anew = await self._bring_back(case)
            if anew is None:
                return Outcome.MOVED if case.has_moved else Outcome.RECOVERED
            if ends := self._arrivals.call_off(case):
                await asyncio.wait(ends)
            return await self._load_anew(case, anew)
        finally:
            self._arrivals.call_off(case)

    async def _bring_back(self, case: Case) -> Anew | None:
        """Until the ring serves, which is None, or it cannot be brought back as it is."""
        while True:
            case.changed.clear()
            await self._arrivals.settle(case)
            examined = await self._examining.examine(case.placement, case.complaints)
            verdict = judge(examined.facts)
            if verdict.lost and case.arrivals:
                await self._arrivals.wait(case, self._limits.poll_s)  # one fellow is not asked for two stages at once
            elif verdict.lost:
                anew = await self._lost_stages.bring(case, verdict, examined)
                if anew is not None:
                    return anew
            elif verdict.waits_for:
                names = [examined.facts[index].fellow_name for index in verdict.waits_for]
                await show(self._board, case, say_away(names))
                await case.wait(self._limits.poll_s)
            else:
                came_up = await self._ring_up.bring_up(case)
                if came_up is True:
                    return None
                if came_up:
                    return came_up

    async def load_again(self, case: Case) -> Outcome | None:
        """What was being loaded is loaded by a fresh plan, on what is left. Raises StaleEpoch."""
        return await self._load_anew(case, Anew(case.why.message))

    async def try_again(self, case: Case) -> Outcome | None:
        """Another fellow is here: see whether the model fits now, and load it. Nothing is said when it does not."""
        refusal = await self._loading_anew.find_refusal(case)
        if refusal:
            await self._incidents.note(case, "waiting", f"it still cannot be loaded: {refusal}")
            self._giving_up.keep(case)
            return None
        return await self._load_anew(case, Anew(case.why.message))

    async def _load_anew(self, case: Case, anew: Anew) -> Outcome | None:
        """By a fresh plan over what is left, or the end."""
        refusal = await self._loading_anew.load(case, anew)
        if refusal:
            await self._giving_up.give_up(case, anew.words, refusal)
            return None
        return Outcome.LOADED_ANEW
