"""How far fellows are, as their heartbeats say: from the leader and from each other. Believes what can be; no plans."""

import math

from silentswarm.core.v1 import stage_pb2
from silentswarm.fellow.v1 import fellow_link_pb2 as link_pb2

from swarm_leader.flows.board import Board
from swarm_leader.flows.registry import Fellow, Registry

ROUND_TRIP_MS_MAX = 60_000.0  # whoever claims more is not believed
STAGES_MAX = 64  # of one heartbeat, as many as its link believes
_MEASURED = (stage_pb2.ROUTE_DIRECT, stage_pb2.ROUTE_RELAY)


class Network:
    """Keeps the newest figures where plans look for them."""

    def __init__(self, registry: Registry, board: Board) -> None:
        self._registry = registry
        self._board = board

    def take_heartbeat(self, fellow: Fellow, heartbeat: link_pb2.Heartbeat) -> None:
        """What one heartbeat says of the network; what it does not say stays as it was."""
        if heartbeat.telemetry.HasField("leader_round_trip_ms"):
            round_trip_ms = heartbeat.telemetry.leader_round_trip_ms
            if is_round_trip(round_trip_ms):
                fellow.hardware.leader_round_trip_ms = round_trip_ms
        for status in heartbeat.stages[:STAGES_MAX]:
            if status.HasField("link_round_trip_ms") and is_round_trip(status.link_round_trip_ms):
                self._take_link(fellow, status)

    def _take_link(self, fellow: Fellow, status: stage_pb2.StageStatus) -> None:
        """Beats of one stage on the link to the next one."""
        spec = status.spec
        placement = self._board.by_id(spec.placement_id)
        if placement is None or status.route not in _MEASURED:
            return
        stages = placement.record.stages
        if spec.stage_index >= len(stages) or stages[spec.stage_index].fellow_id != fellow.fellow_id:
            return
        peer_id = stages[(spec.stage_index + 1) % len(stages)].fellow_id
        is_relayed = status.route == stage_pb2.ROUTE_RELAY
        self._registry.link_times.note(fellow.fellow_id, peer_id, is_relayed, status.link_round_trip_ms)


def is_round_trip(round_trip_ms: float) -> bool:
    """Whether a time there and back can be."""
    return math.isfinite(round_trip_ms) and 0 < round_trip_ms <= ROUND_TRIP_MS_MAX
