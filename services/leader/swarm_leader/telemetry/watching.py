"""Everything that watches over machines, put together over an open leader. Decides nothing."""

import asyncio

import grpc
from silentswarm.fellow.v1 import logs_pb2_grpc as up_pb2_grpc
from silentswarm.leader.v1 import logs_pb2_grpc, telemetry_pb2_grpc
from swarm_core.clock import Clock

from swarm_leader.config import LeaderConfig
from swarm_leader.domain.ports import IncidentStore
from swarm_leader.domain.telemetry_records import MetricStore
from swarm_leader.flows.board import Board
from swarm_leader.flows.registry import Registry
from swarm_leader.flows.tasks import TaskSet, begin_again
from swarm_leader.logs.desk import LogDesk
from swarm_leader.logs.files import LogFiles
from swarm_leader.rpc.logs import FellowLogsServicer, LogsServicer
from swarm_leader.rpc.telemetry import TelemetryServicer
from swarm_leader.telemetry.alert_ways import Email, Webhook
from swarm_leader.telemetry.alerting import Alerting, Way
from swarm_leader.telemetry.feed import Telemetry
from swarm_leader.telemetry.history import History
from swarm_leader.telemetry.incidents import ToldIncidents
from swarm_leader.telemetry.replacing import NodeReplacing

LOGS_SWEPT_S = 1.0
AGAIN_S = 5.0
DISK_SPARE = 1.1  # logs leave a tenth more free than a leader needs to be ready


class Watching:
    """The parts. telemetry: who hears of machines and replies tells it."""

    def __init__(
        self, registry: Registry, board: Board, store: MetricStore, clock: Clock, tasks: TaskSet, config: LeaderConfig
    ) -> None:
        self.telemetry = Telemetry(registry, board, clock, config.heartbeat_s)
        self.alerting = Alerting(alert_ways(config, clock), clock)
        self.telemetry.timeline.read_by(self.alerting.take)
        free_bytes_min = int(DISK_SPARE * config.min_free_disk_gb * 1e9)
        files = LogFiles(config.data_dir / "logs", config.logs_max_mb * 2**20, free_bytes_min)
        self.logs = LogDesk(files, clock)
        self._history = History(self.telemetry, store, clock)
        self._registry = registry
        self._store = store
        self._clock = clock
        self.replacing = NodeReplacing(config.replace_mode, self.telemetry, registry, clock, tasks)

    def telling(self, store: IncidentStore) -> ToldIncidents:
        """The same store, of which the timeline hears."""
        return ToldIncidents(store, self.telemetry.take_incident)

    def add_to(self, server: grpc.aio.Server) -> None:
        """Let a server answer for it."""
        told = TelemetryServicer(self.telemetry, self._store, self._registry, self._clock)
        telemetry_pb2_grpc.add_TelemetryServicer_to_server(told, server)
        logs_pb2_grpc.add_LogsServicer_to_server(LogsServicer(self.logs, self._registry), server)
        up_pb2_grpc.add_FellowLogsServicer_to_server(FellowLogsServicer(self.logs, self._registry), server)

    async def run(self) -> None:
        """Until cancelled."""
        try:
            await asyncio.gather(
                begin_again(lambda: self._history.run(self.replacing.tick), "history", AGAIN_S),
                begin_again(self.alerting.run, "alerts", AGAIN_S),
                begin_again(self._sweep_logs, "logs", AGAIN_S),
            )
        finally:
            self.logs.close()

    async def _sweep_logs(self) -> None:
        """Logs of fellows that were deleted go, also of those deleted while the leader did not run."""
        seen: set[str] | None = None
        while True:
            known = {fellow.fellow_id for fellow in self._registry.all()}
            if known != seen or self.logs.fellow_ids() - known:
                await self.logs.forget_all_but(known)
            seen = known
            await asyncio.sleep(LOGS_SWEPT_S)


def alert_ways(config: LeaderConfig, clock: Clock) -> list[Way]:
    """The ways that are set. Raises BadRequest that names the variable; `check` does so first."""
    ways: list[Way] = []
    if config.alert_webhook:
        ways.append(Webhook(config.alert_webhook, config.alert_secret, clock.unix_s))
    if config.alert_smtp_url or config.alert_to:
        ways.append(Email(config.alert_smtp_url, config.alert_to))
    return ways
