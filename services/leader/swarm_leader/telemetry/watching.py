"""Everything that watches over machines, put together over an open leader. Decides nothing."""

import grpc
from silentswarm.leader.v1 import telemetry_pb2_grpc
from swarm_core.clock import Clock

from swarm_leader.domain.telemetry_records import MetricStore
from swarm_leader.flows.board import Board
from swarm_leader.flows.registry import Registry
from swarm_leader.rpc.telemetry import TelemetryServicer
from swarm_leader.telemetry.feed import Telemetry
from swarm_leader.telemetry.history import History


class Watching:
    """The parts. telemetry: who hears of machines and replies tells it."""

    def __init__(self, registry: Registry, board: Board, store: MetricStore, clock: Clock, heartbeat_s: float) -> None:
        self.telemetry = Telemetry(registry, board, clock, heartbeat_s)
        self._history = History(self.telemetry, store, clock)
        self._servicer = TelemetryServicer(self.telemetry, store, registry, clock)

    def add_to(self, server: grpc.aio.Server) -> None:
        """Let a server answer for it."""
        telemetry_pb2_grpc.add_TelemetryServicer_to_server(self._servicer, server)

    async def run(self) -> None:
        """Until cancelled."""
        await self._history.run()
