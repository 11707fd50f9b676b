"""Which ring answers for a model or an adapter: a ready one, or an idle one that loads again. Loads nothing itself."""

import asyncio
from collections.abc import AsyncGenerator

from swarm_core.errors import DeadlinePassed, ModelNotReady

from swarm_leader.domain.holding import AdapterUse
from swarm_leader.domain.ports import Catalog
from swarm_leader.domain.records import PlacementState
from swarm_leader.flows.board import Board, Placement
from swarm_leader.flows.gate import Gates, Standing
from swarm_leader.flows.load import Loading

_WAKING = (PlacementState.LOADING, PlacementState.WIRING)


class ReadyRings:
    """Finds the ring that answers for a model, and wakes it."""

    def __init__(self, catalog: Catalog, board: Board, loading: Loading, gates: Gates, load_timeout_s: float) -> None:
        self._catalog = catalog
        self._board = board
        self._loading = loading
        self._gates = gates
        self._load_timeout_s = load_timeout_s

    async def wake(self, model_id: str) -> AsyncGenerator[Standing, None]:
        """Load an idle model again, and say how a request for it stands until that is over, one way or the other.

        An adapter wakes the base that holds it. Raises ModelNotFound, ServableCorrupt, Overloaded when as many wait
        already as may, DeadlinePassed, and what a load raises.
        """
        serving = self._board.serving_of(model_id)
        if serving is None:
            await asyncio.to_thread(self._catalog.refresh)
            self._catalog.get(model_id)
            return
        placement, _ = serving
        if placement.state is PlacementState.IDLE:
            placement = await self._loading.wake(placement)
        if placement.is_waking and placement.state in _WAKING:
            with self._gates.of(placement.model_id).load_awaited() as standing:
                yield standing
                await self._wait_awake(placement)

    def require(self, model_id: str, at: str = "") -> tuple[Placement, str]:
        """The ring that answers for a model, and the adapter it runs with there ("" is none).

        at: the model in whose gate the request has its place already; another ring will not do. Raises ModelNotReady
        that says where the model stands and what to do.
        """
        serving = self._board.serving_of(model_id)
        if serving is None or serving[0].state is not PlacementState.READY:
            raise self._not_ready(model_id, serving[0] if serving else None)
        if at and serving[0].model_id != at:
            raise ModelNotReady(f"another ring answers for {model_id} since this waited; try again", state="ready")
        return serving

    def _not_ready(self, model_id: str, placement: Placement | None) -> ModelNotReady:
        """Why nothing answers for a model now. placement: what will, or did last; None when nothing ever did."""
        state = self._board.state_of(model_id)
        if placement is not None and placement.state.holds_memory:
            told = f" ({placement.record.reason})" if placement.record.reason else ""
            return ModelNotReady(f"{model_id} is {state}{told}; try again soon", state=state)
        base = self._base_of(model_id) if placement is None else ""
        if base:
            return self._without_adapter(model_id, base)
        fix = f"swarm model-load {model_id}"
        if placement is not None and placement.model_id != model_id:
            fix = f"swarm model-load {placement.model_id} --adapter {model_id}"
        reason = placement.record.reason if placement is not None else ""
        if reason.endswith(fix):
            return ModelNotReady(f"{model_id} is {state}: {reason}", state=state)
        told = f" ({reason})" if reason else ""
        return ModelNotReady(f"{model_id} is {state}{told}; load it with: {fix}", state=state)

    def _without_adapter(self, model_id: str, base: str) -> ModelNotReady:
        """An adapter that nothing holds: how to have its base hold it, and those it holds already."""
        placement = self._board.get(base)
        state = self._board.state_of(base)
        held: list[str] = []
        first = ""
        if placement is not None and placement.state.holds_memory:
            held = [one.model_id for one in placement.record.adapters if one.use is AdapterUse.CHOSEN]
            first, state = f"swarm model-unload {base}, then ", f"{state} without it"
        adapters = " ".join(f"--adapter {one}" for one in (*held, model_id))
        return ModelNotReady(
            f"{model_id} is unloaded: it is an adapter of {base}, which is {state}; load it with: {first}"
            f"swarm model-load {base} {adapters}",
            state=PlacementState.UNLOADED.value,
        )

    def _base_of(self, model_id: str) -> str:
        """What a model of the catalog is an adapter of; "" for a whole model, and for one that is gone or damaged."""
        manifest = self._catalog.manifests().get(model_id)
        return manifest.adapter.base_model_id if manifest is not None and manifest.adapter is not None else ""

    async def _wait_awake(self, placement: Placement) -> None:
        """Until the load of an idle model is over, one way or the other. Raises DeadlinePassed."""
        try:
            async with asyncio.timeout(self._load_timeout_s):
                while placement.state in _WAKING:
                    version = self._board.version(placement.model_id)
                    await self._board.wait_change(placement.model_id, version)
        except TimeoutError:
            raise DeadlinePassed(f"{placement.model_id} did not load again within {self._load_timeout_s:g} s") from None
