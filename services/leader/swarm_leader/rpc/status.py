"""leader.v1.Status: liveness and readiness. Thin."""

import grpc
from silentswarm.leader.v1 import status_pb2, status_pb2_grpc

from swarm_leader.flows.health import Health


class StatusServicer(status_pb2_grpc.StatusServicer):
    """Whether the leader lives and can work."""

    def __init__(self, health: Health, version: str) -> None:
        self._health = health
        self._version = version

    async def GetHealth(
        self, request: status_pb2.GetHealthRequest, context: grpc.aio.ServicerContext
    ) -> status_pb2.GetHealthResponse:
        return status_pb2.GetHealthResponse(version=self._version, uptime_s=self._health.uptime_s)

    async def GetReady(
        self, request: status_pb2.GetReadyRequest, context: grpc.aio.ServicerContext
    ) -> status_pb2.GetReadyResponse:
        reasons = await self._health.find_reasons()
        return status_pb2.GetReadyResponse(ready=not reasons, reasons=reasons)
