"""leader.v1.Fleet: the machines. Thin."""

import grpc
from silentswarm.leader.v1 import fleet_pb2, fleet_pb2_grpc
from swarm_core.clock import Clock

from swarm_leader.domain.leases import FellowState
from swarm_leader.flows.draining import Draining
from swarm_leader.flows.fleet import Fleet
from swarm_leader.flows.registry import Fellow, Registry
from swarm_leader.rpc.telemetry import grade_to_proto
from swarm_leader.telemetry.feed import Telemetry

DRAINING = "draining"


class FleetServicer(fleet_pb2_grpc.FleetServicer):
    """Fellows and their devices."""

    def __init__(
        self, fleet: Fleet, draining: Draining, registry: Registry, clock: Clock, telemetry: Telemetry
    ) -> None:
        self._draining = draining
        self._telemetry = telemetry
        self._fleet = fleet
        self._registry = registry
        self._clock = clock

    async def ListFellows(
        self, request: fleet_pb2.ListFellowsRequest, context: grpc.aio.ServicerContext
    ) -> fleet_pb2.ListFellowsResponse:
        return fleet_pb2.ListFellowsResponse(fellows=[self._fellow(one) for one in self._of(request.pool)])

    async def ListDevices(
        self, request: fleet_pb2.ListDevicesRequest, context: grpc.aio.ServicerContext
    ) -> fleet_pb2.ListDevicesResponse:
        devices = [
            fleet_pb2.FellowDevice(fellow_id=fellow.fellow_id, fellow_name=fellow.name, device=device)
            for fellow in self._of(request.pool)
            if self._registry.is_connected(fellow.fellow_id)
            for device in sorted(fellow.hardware.devices, key=lambda device: device.device_index)
        ]
        return fleet_pb2.ListDevicesResponse(devices=devices)

    async def DeleteFellow(
        self, request: fleet_pb2.DeleteFellowRequest, context: grpc.aio.ServicerContext
    ) -> fleet_pb2.DeleteFellowResponse:
        await self._fleet.delete(request.fellow_id)
        return fleet_pb2.DeleteFellowResponse()

    async def PingFellow(
        self, request: fleet_pb2.PingFellowRequest, context: grpc.aio.ServicerContext
    ) -> fleet_pb2.PingFellowResponse:
        fellow_id = self._registry.find(request.fellow_id).fellow_id
        round_trip_ms = await self._fleet.ping(fellow_id)
        self._telemetry.take_ping(fellow_id, round_trip_ms)
        return fleet_pb2.PingFellowResponse(round_trip_ms=round_trip_ms)

    async def ReleaseFellow(
        self, request: fleet_pb2.ReleaseFellowRequest, context: grpc.aio.ServicerContext
    ) -> fleet_pb2.ReleaseFellowResponse:
        await self._fleet.release(request.fellow_id)
        return fleet_pb2.ReleaseFellowResponse()

    async def PurgeFellow(
        self, request: fleet_pb2.PurgeFellowRequest, context: grpc.aio.ServicerContext
    ) -> fleet_pb2.PurgeFellowResponse:
        await self._fleet.purge(request.fellow_id)
        return fleet_pb2.PurgeFellowResponse()

    async def UpdateFellow(
        self, request: fleet_pb2.UpdateFellowRequest, context: grpc.aio.ServicerContext
    ) -> fleet_pb2.UpdateFellowResponse:
        await self._fleet.update(request.fellow_id)
        return fleet_pb2.UpdateFellowResponse()

    def _of(self, pool: str) -> list[Fellow]:
        """Fellows of a pool; "" is all."""
        return [fellow for fellow in self._registry.all() if pool in ("", fellow.record.pool)]

    async def DrainFellow(
        self, request: fleet_pb2.DrainFellowRequest, context: grpc.aio.ServicerContext
    ) -> fleet_pb2.DrainFellowResponse:
        moves = await self._draining.drain(request.fellow_id)
        return fleet_pb2.DrainFellowResponse(
            moves=[
                fleet_pb2.DrainMove(model_id=one.model_id, stage_index=one.stage_index, to_fellow=one.to_fellow)
                for one in moves
            ]
        )

    async def UndrainFellow(
        self, request: fleet_pb2.UndrainFellowRequest, context: grpc.aio.ServicerContext
    ) -> fleet_pb2.UndrainFellowResponse:
        await self._draining.undrain(request.fellow_id)
        return fleet_pb2.UndrainFellowResponse()

    def _state(self, fellow: Fellow) -> str:
        """In one word."""
        state = self._registry.state(fellow)
        return DRAINING if state is FellowState.CONNECTED and fellow.record.draining else state.value

    def _fellow(self, fellow: Fellow) -> fleet_pb2.Fellow:
        age_s, node = None, self._telemetry.node(fellow)
        if fellow.heartbeat_at_s is not None:
            age_s = self._clock.monotonic_s() - fellow.heartbeat_at_s
        return fleet_pb2.Fellow(
            fellow_id=fellow.fellow_id,
            name=fellow.name,
            state=self._state(fellow),
            hardware=fellow.hardware,
            capabilities=fellow.declared,
            stages=[held.status for held in fellow.stages.values() if held.status is not None],
            heartbeat_age_s=age_s,
            version=fellow.record.version,
            joined_s=int(fellow.record.joined_s),
            pool=fellow.record.pool,
            grade=grade_to_proto(node.grade),
            availability=node.figures.availability,
        )
