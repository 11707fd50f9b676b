"""Models that nothing brings back now: who waits is told why, and when they are tried again. Loads none."""

from collections.abc import Mapping
from dataclasses import replace

import structlog
from swarm_core.clock import Clock
from swarm_core.errors import ModelNotReady, SwarmError

from swarm_leader.domain.healing.rewiring import Tries
from swarm_leader.domain.healing.words import join_words, say_fix, tell_lost
from swarm_leader.domain.records import PlacementState, StageRecord
from swarm_leader.flows.board import Board
from swarm_leader.flows.ending import Ending
from swarm_leader.flows.healing_case import Case
from swarm_leader.flows.incidents import Incidents
from swarm_leader.flows.registry import Registry

log = structlog.get_logger()


LINE_AGAIN_S, LINE_AGAIN_MAX_S = 15.0, 60.0  # nobody tells that a line between others was mended


class GivingUp:
    """Keeps the cases that wait: for another fellow, or, where lines were down, for some time to pass."""

    def __init__(self, board: Board, registry: Registry, ending: Ending, incidents: Incidents, clock: Clock) -> None:
        self._board = board
        self._registry = registry
        self._ending = ending
        self._incidents = incidents
        self._clock = clock
        self._waiting: dict[str, Case] = {}  # by model id

    def keep(self, case: Case) -> None:
        """It waits, from now on."""
        if case.is_line_down:
            case.wait_s = min(LINE_AGAIN_MAX_S, 2 * case.wait_s or LINE_AGAIN_S)
            case.again_at_s = self._clock.monotonic_s() + case.wait_s
        self._waiting[case.model_id] = case

    def take_ended(self) -> list[Case]:
        """Those that somebody ended, or whose model was loaded meanwhile; they wait no more."""
        over = [case for case in self._waiting.values() if not self._is_ours(case)]
        for case in over:
            del self._waiting[case.model_id]
        return over

    def take_due(self) -> list[Case]:
        """Those to be tried again, since a fellow is here that was not, or their time has come; they wait no more."""
        connected, now_s = self._connected(), self._clock.monotonic_s()
        due = [
            case
            for case in self._waiting.values()
            if connected - case.tried_with or (case.again_at_s is not None and now_s >= case.again_at_s)
        ]
        for case in self._waiting.values():
            case.tried_with &= connected  # who leaves and comes back is a new chance
        for case in due:
            del self._waiting[case.model_id]
            case.tried_with = connected
        return due

    async def give_up(self, case: Case, words: str, refusal: str = "") -> None:
        """Nothing helps now: say so to everyone who waits. refusal: why it cannot be loaded anew."""
        placement, case.is_given_up = case.placement, True
        away = [stage for _, stage in sorted(case.away.items()) if not self._registry.is_connected(stage.fellow_id)]
        # Of a machine that is away, what the fleet lacks without it says more than who holds what beside it.
        words = refusal if refusal and away else join_words(words, refusal)
        told = _say(case, {stage: self._registry.name_of(stage.fellow_id) for stage in away}, words)
        fix = say_fix(case.model_id, sorted({self._registry.name_of(stage.fellow_id) for stage in away}))
        # Whoever was held hears what whoever asks from now on hears.
        why = ModelNotReady(f"{told}; {fix}", state=PlacementState.FAILED.value, **_machine(case.why))
        if placement.state.holds_memory:
            await self._ending.end(placement, PlacementState.FAILED, why)
        elif self._is_ours(case):
            failed = replace(placement.record, reason=why.message)
            try:
                await self._board.save(placement, lambda record: failed, told)
            except SwarmError as error:
                log.error("a failure was not recorded", model=placement.model_id, why=error.message)
                self._board.show(placement, failed)
        self._ending.turn_away(placement, why)
        await self._incidents.note(case, "waiting", told)
        case.tried_with = self._connected()
        case.refused.clear()
        case.moves, case.tries = 0, Tries()
        self.keep(case)

    def _is_ours(self, case: Case) -> bool:
        """Nobody loaded or unloaded its model since it failed."""
        return self._board.is_current(case.placement) and case.placement.state is PlacementState.FAILED

    def _connected(self) -> frozenset[str]:
        fellow_ids = (fellow.fellow_id for fellow in self._registry.all())
        return frozenset(one for one in fellow_ids if self._registry.is_connected(one))


def _say(case: Case, away: Mapping[StageRecord, str], words: str) -> str:
    """What happened, and why nothing helps. away: stages that nobody holds, with the names of their machines."""
    if not away:
        return join_words(case.why.message, words)
    who = (tell_lost(stage, name) for stage, name in away.items())
    return join_words(*who, f"nobody else can hold {'it' if len(away) == 1 else 'them'}: {words}")


def _machine(why: SwarmError) -> dict[str, object]:
    """Where it was, as far as that is known."""
    return {name: why.facts[name] for name in ("fellow", "stage") if name in why.facts}
