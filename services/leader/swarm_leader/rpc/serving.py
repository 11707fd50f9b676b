"""leader.v1.Serving: plan, load, unload, watch. Thin."""

import asyncio
from collections.abc import AsyncIterator

import grpc
from silentswarm.leader.v1 import serving_pb2, serving_pb2_grpc
from swarm_core.errors import Conflict

from swarm_leader.domain.ports import Catalog
from swarm_leader.domain.records import PlacementState, Transport
from swarm_leader.flows.board import Board, Placement
from swarm_leader.flows.load import Loading
from swarm_leader.rpc.performance import PerformanceWriter
from swarm_leader.rpc.placements import StatusWriter, plan_request_from_proto

_SETTLED = (PlacementState.READY, PlacementState.FAILED, PlacementState.IDLE, PlacementState.UNLOADED)


class ServingServicer(serving_pb2_grpc.ServingServicer):
    """Loading and unloading."""

    def __init__(
        self,
        loading: Loading,
        board: Board,
        catalog: Catalog,
        writer: StatusWriter,
        performances: PerformanceWriter,
        transport: Transport,
    ) -> None:
        self._loading = loading
        self._board = board
        self._catalog = catalog
        self._writer = writer
        self._performances = performances
        self._transport = transport

    async def LoadModel(
        self, request: serving_pb2.LoadModelRequest, context: grpc.aio.ServicerContext
    ) -> serving_pb2.ModelStatus:
        placement = await self._loading.load(request.model_id, plan_request_from_proto(request, self._transport))
        return self._writer.of_model(request.model_id, placement)

    async def PlanModel(
        self, request: serving_pb2.LoadModelRequest, context: grpc.aio.ServicerContext
    ) -> serving_pb2.ModelStatus:
        planned = await self._loading.plan(request.model_id, plan_request_from_proto(request, self._transport))
        return self._writer.of_plan(request.model_id, planned)

    async def UnloadModel(
        self, request: serving_pb2.UnloadModelRequest, context: grpc.aio.ServicerContext
    ) -> serving_pb2.ModelStatus:
        placement = await self._loading.unload(request.model_id)
        if placement is None:
            self._refuse_held(request.model_id)
        return self._writer.of_model(request.model_id, placement)

    async def GetModelStatus(
        self, request: serving_pb2.GetModelStatusRequest, context: grpc.aio.ServicerContext
    ) -> serving_pb2.ModelStatus:
        return await self._status(request.model_id)

    async def GetPerformance(
        self, request: serving_pb2.GetPerformanceRequest, context: grpc.aio.ServicerContext
    ) -> serving_pb2.ModelPerformance:
        return self._performances.of_model(request.model_id, await self._placement(request.model_id))

    async def WatchModel(
        self, request: serving_pb2.WatchModelRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[serving_pb2.ModelStatus]:
        while True:
            # Read before the status: a change while it is sent is then seen, and many changes become one.
            placement = await self._placement(request.model_id)
            watched = placement.model_id if placement is not None else request.model_id
            version = self._board.version(watched)
            is_settled = placement is None or (placement.state in _SETTLED and not placement.is_healing)
            yield self._writer.of_model(request.model_id, placement)
            if is_settled:
                return
            await self._board.wait_change(watched, version)

    async def ListServing(
        self, request: serving_pb2.ListServingRequest, context: grpc.aio.ServicerContext
    ) -> serving_pb2.ListServingResponse:
        served = [one for one in self._board.all() if one.state is not PlacementState.UNLOADED]
        return serving_pb2.ListServingResponse(models=[self._writer.of_model(one.model_id, one) for one in served])

    async def _status(self, model_id: str) -> serving_pb2.ModelStatus:
        """Where a model stands. Raises as `_placement` does."""
        return self._writer.of_model(model_id, await self._placement(model_id))

    async def _placement(self, model_id: str) -> Placement | None:
        """A model's own placement, else that of a base which holds it as an adapter; None when it was never served.

        Raises ModelNotFound, ServableCorrupt.
        """
        own = self._board.get(model_id)
        if own is not None and own.state is not PlacementState.UNLOADED:
            return own
        serving = self._board.serving_of(model_id)
        if serving is None:
            await asyncio.to_thread(self._catalog.refresh)
            self._catalog.get(model_id)
        return serving[0] if serving is not None else None

    def _refuse_held(self, model_id: str) -> None:
        """An adapter cannot be taken out of a base that is loaded. Raises Conflict."""
        serving = self._board.serving_of(model_id)
        if serving is not None and serving[0].state.holds_memory:
            base = serving[0].model_id
            raise Conflict(f"{model_id} is held as an adapter of {base}; it ends with: swarm model-unload {base}")
