"""A heartbeat as a sample. Believes no figure that cannot be; what is not said stays unknown."""

from math import isfinite

from silentswarm.core.v1 import telemetry_pb2
from silentswarm.fellow.v1 import fellow_link_pb2 as link_pb2

from swarm_leader.telemetry.window import Sample, median

DEVICES_MAX = 64
PEERS_MAX = 256
MS_MAX, CELSIUS_MAX, WATTS_MAX = 600_000.0, 1_000.0, 100_000.0


def sample_of(heartbeat: link_pb2.Heartbeat) -> Sample:
    """What a heartbeat says of its machine's health."""
    told = heartbeat.telemetry
    devices = told.devices[:DEVICES_MAX]
    watts = [_known(device, "power_w", WATTS_MAX) for device in devices]
    return Sample(
        leader_round_trip_ms=_known(told, "leader_round_trip_ms", MS_MAX),
        peer_round_trip_ms=median(_peers(heartbeat)),
        temperature_c=_largest(_known(device, "temperature_c", CELSIUS_MAX) for device in devices),
        power_w=sum(watt for watt in watts if watt is not None) if any(watt is not None for watt in watts) else None,
        busy_share=_largest(_known(device, "busy_share", 1.0) for device in devices),
        cpu_busy_share=_known(told, "cpu_busy_share", 1.0),
        memory_free_bytes=_counted(told, "memory_free_bytes"),
        disk_free_bytes=_counted(told, "disk_free_bytes"),
        out_of_memory=_counted(told, "out_of_memory_count"),
        errors=_counted(told, "error_count"),
        stage_crashes=_counted(told, "stage_crash_count"),
    )


def _peers(heartbeat: link_pb2.Heartbeat) -> list[float | None]:
    """There and back to neighbours: as the machine says, else as its stages do."""
    peers = [peer.round_trip_ms for peer in heartbeat.telemetry.peers[:PEERS_MAX]]
    if peers:
        return [trip_ms for trip_ms in peers if isfinite(trip_ms) and 0 <= trip_ms <= MS_MAX]
    return [_known(status, "link_round_trip_ms", MS_MAX) for status in heartbeat.stages[:PEERS_MAX]]


def _known(message: object, field: str, most: float) -> float | None:
    if not message.HasField(field):  # type: ignore[attr-defined]
        return None
    figure = getattr(message, field)
    return figure if isfinite(figure) and 0 <= figure <= most else None


def _counted(message: telemetry_pb2.NodeTelemetry, field: str) -> int | None:
    return min(getattr(message, field), 2**53) if message.HasField(field) else None  # type: ignore[arg-type]


def _largest(figures) -> float | None:
    return max((figure for figure in figures if figure is not None), default=None)
