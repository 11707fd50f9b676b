"""Which ring serves a model: the ready one, or an idle one once it is loaded again. Loads nothing itself."""

import asyncio
from collections.abc import AsyncGenerator

from swarm_core.errors import DeadlinePassed, ModelNotReady

from swarm_leader.domain.ports import Catalog
from swarm_leader.domain.records import PlacementState
from swarm_leader.flows.board import Board, Placement
from swarm_leader.flows.gate import Gates, Standing
from swarm_leader.flows.load import Loading

_WAKING = (PlacementState.LOADING, PlacementState.WIRING)


class ReadyRings:
    """Finds the ring of a model, and wakes it."""

    def __init__(self, catalog: Catalog, board: Board, loading: Loading, gates: Gates, load_timeout_s: float) -> None:
        self._catalog = catalog
        self._board = board
        self._loading = loading
        self._gates = gates
        self._load_timeout_s = load_timeout_s

    async def wake(self, model_id: str) -> AsyncGenerator[Standing, None]:
        """Load an idle model again, and say how a request for it stands until that is over, one way or the other.

        Raises ModelNotFound, ServableCorrupt, Overloaded when as many wait already as may, DeadlinePassed, and what a
        load raises.
        """
        placement = self._board.get(model_id)
        if placement is None:
            await asyncio.to_thread(self._catalog.refresh)
            self._catalog.get(model_id)
            return
        if placement.state is PlacementState.IDLE:
            placement = await self._loading.wake(placement)
        if placement.is_waking and placement.state in _WAKING:
            with self._gates.of(model_id).load_awaited() as standing:
                yield standing
                await self._wait_awake(placement)

    def require(self, model_id: str) -> Placement:
        """The model's placement. Raises ModelNotReady that says where it stands and what to do."""
        placement = self._board.get(model_id)
        if placement is not None and placement.state is PlacementState.READY:
            return placement
        state = self._board.state_of(model_id)
        if placement is not None and placement.state.holds_memory:
            told = f" ({placement.record.reason})" if placement.record.reason else ""
            raise ModelNotReady(f"{model_id} is {state}{told}; try again soon", state=state)
        fix = f"swarm model-load {model_id}"
        reason = placement.record.reason if placement is not None else ""
        if reason.endswith(fix):
            raise ModelNotReady(f"{model_id} is {state}: {reason}", state=state)
        told = f" ({reason})" if reason else ""
        raise ModelNotReady(f"{model_id} is {state}{told}; load it with: {fix}", state=state)

    async def _wait_awake(self, placement: Placement) -> None:
        """Until the load of an idle model is over, one way or the other. Raises DeadlinePassed."""
        try:
            async with asyncio.timeout(self._load_timeout_s):
                while placement.state in _WAKING:
                    version = self._board.version(placement.model_id)
                    await self._board.wait_change(placement.model_id, version)
        except TimeoutError:
            raise DeadlinePassed(f"{placement.model_id} did not load again within {self._load_timeout_s:g} s") from None
