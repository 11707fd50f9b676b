"""Loading a model by a fresh plan when its ring cannot be brought back as it was. Decides not whether."""

from dataclasses import dataclass, replace

from swarm_core.errors import FellowLost, LoadFailed, StageFailed, StaleEpoch, SwarmError

from swarm_leader.domain.healing.words import join_words, shorten
from swarm_leader.domain.planning.plan import PlanRequest
from swarm_leader.domain.records import PlacementState
from swarm_leader.flows.board import Board, Placement
from swarm_leader.flows.ending import Ending
from swarm_leader.flows.examining import are_connected
from swarm_leader.flows.healing_case import Case
from swarm_leader.flows.incidents import Incidents
from swarm_leader.flows.load import Loading
from swarm_leader.flows.registry import Registry

_SETTLED = (PlacementState.READY, PlacementState.IDLE, PlacementState.FAILED, PlacementState.UNLOADED)


@dataclass(frozen=True)
class Anew:
    """A ring cannot be brought back as it is.

    fewest: over as few stages as fit. is_same: on the same fellows first. without: not on these fellows, first.
    """

    words: str
    fewest: bool = False
    is_same: bool = False
    without: frozenset[str] = frozenset()


class LoadingAnew:
    """Loads models again."""

    def __init__(
        self, board: Board, registry: Registry, loading: Loading, ending: Ending, incidents: Incidents
    ) -> None:
        self._board = board
        self._registry = registry
        self._loading = loading
        self._ending = ending
        self._incidents = incidents

    async def find_refusal(self, case: Case) -> str:
        """Why its model cannot be loaded now, as far as a plan tells; "" when it can."""
        (request,) = await self._requests(case, Anew("", fewest=True))
        try:
            await self._loading.plan(case.model_id, request)
        except SwarmError as refusal:
            return refusal.message
        return ""

    async def load(self, case: Case, anew: Anew) -> str:
        """End what is left of a placement, and load its model by the first request that works, up to ready.

        Its replies wait meanwhile. Returns "" once the model serves, as case.placement; else why it cannot, and the
        placement is FAILED. Raises StaleEpoch when somebody else ended it or loaded the model meanwhile.
        """
        requests = await self._requests(case, anew)
        why = _same_kind(case.why, join_words(case.fault if case.away else case.why.message, anew.words))
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

    async def _requests(self, case: Case, anew: Anew) -> list[PlanRequest]:
        """What to ask for: as many stages as there were, else as few as fit."""
        record = case.placement.record
        again = await self._loading.ask_again(record)
        free = replace(again, num_stages=0)
        requests = [free] if anew.fewest else [again, free]
        if anew.is_same and are_connected(self._registry, record):
            holders = tuple(stage.fellow_id for stage in record.stages)
            requests.insert(0, replace(requests[0], fellow_ids=holders))
        others = tuple(one.fellow_id for one in record.stages if one.fellow_id not in anew.without)
        if others and anew.without:
            requests.insert(0, replace(free, fellow_ids=others))
        return requests

    def _check_ours(self, case: Case) -> None:
        """Nobody ended it for good, or loaded the model otherwise. Raises StaleEpoch."""
        placement = case.placement
        if not self._board.is_current(placement) or placement.state is not PlacementState.FAILED:
            raise StaleEpoch(f"{case.model_id} was unloaded or loaded meanwhile")

    async def _settle(self, placement: Placement) -> None:
        """Until a load is over; it has deadlines of its own for every step."""
        while placement.state not in _SETTLED and self._board.is_current(placement):
            await self._board.wait_change(placement.model_id, self._board.version(placement.model_id))


def _same_kind(why: SwarmError, words: str) -> SwarmError:
    """The same fact in other words."""
    kind = type(why) if isinstance(why, FellowLost | StageFailed) else LoadFailed
    return kind(words, **why.facts)
