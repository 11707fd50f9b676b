"""Loading a model by a fresh plan when its ring cannot be brought back as it was. Decides not whether."""

from collections.abc import Sequence
from dataclasses import replace

from swarm_core.errors import FellowLost, StaleEpoch, SwarmError

from swarm_leader.domain.healing.words import shorten
from swarm_leader.domain.planning.plan import PlanRequest
from swarm_leader.domain.records import PlacementState
from swarm_leader.flows.board import Board, Placement
from swarm_leader.flows.ending import Ending
from swarm_leader.flows.healing_case import Case, Incidents
from swarm_leader.flows.load import Loading

_SETTLED = (PlacementState.READY, PlacementState.IDLE, PlacementState.FAILED, PlacementState.UNLOADED)


class LoadingAnew:
    """Loads models again."""

    def __init__(self, board: Board, loading: Loading, ending: Ending, incidents: Incidents) -> None:
        self._board = board
        self._loading = loading
        self._ending = ending
        self._incidents = incidents

    async def requests(self, case: Case, fewest: bool) -> list[PlanRequest]:
        """What to ask for: as many stages as there were, else as few as fit. fewest: that at once."""
        again = await self._loading.ask_again(case.placement.record)
        free = replace(again, num_stages=0)
        return [free] if fewest else [again, free]

    async def load(self, case: Case, why: SwarmError, requests: Sequence[PlanRequest]) -> str:
        """End what is left of a placement, and load its model by the first request that works, up to ready.

        Its replies wait meanwhile. Returns "" once the model serves, as case.placement; else why it cannot, and the
        placement is FAILED. Raises StaleEpoch when somebody else ended it or loaded the model meanwhile.
        """
        placement = case.placement
        placement.is_healing = True
        if placement.state.holds_memory:
            await self._incidents.note(case, "loading anew", f"the model is loaded anew: {why.message}")
            said = FellowLost(shorten(f"{case.fault}; the model is loaded anew"))
            if not await self._ending.end(placement, PlacementState.FAILED, said, is_final=False):
                raise StaleEpoch(f"{case.model_id} ended meanwhile")
        self._check_ours(case)
        refusals: list[str] = []
        for request in requests:
            try:
                loaded = await self._loading.load(case.model_id, request, instead_of=case.placement)
            except SwarmError as refusal:
                self._check_ours(case)
                refusals.append(refusal.message)
                continue
            case.placement = loaded
            count = len(loaded.record.stages)
            await self._incidents.note(case, "loading anew", f"loads over {count} stage{'s' if count > 1 else ''}")
            await self._settle(loaded)
            if loaded.state is PlacementState.READY:
                return ""
            self._check_ours(case)
            refusals.append(loaded.record.reason)
        return refusals[-1] if refusals else why.message

    def _check_ours(self, case: Case) -> None:
        """Nobody ended it for good, or loaded the model otherwise. Raises StaleEpoch."""
        placement = case.placement
        if not self._board.is_current(placement) or placement.state is not PlacementState.FAILED:
            raise StaleEpoch(f"{case.model_id} was unloaded or loaded meanwhile")

    async def _settle(self, placement: Placement) -> None:
        """Until a load is over; it has deadlines of its own for every step."""
        while placement.state not in _SETTLED and self._board.is_current(placement):
            await self._board.wait_change(placement.model_id, self._board.version(placement.model_id))
