"""What a heartbeat says of this machine's health: figures of it and its neighbours, and counters. Waits for nothing."""

from collections.abc import Callable, Iterable, Sequence

from silentswarm.core.v1 import stage_pb2, telemetry_pb2

from swarm_fellow.host.vitals import DeviceVitals, VitalsReader


class Vitals:
    """Put together anew for each heartbeat.

    device_names: in the order in which they are reported. round_trip_ms: to the leader, None before it was measured.
    crashes: stages that ended though nobody asked. errors, out_of_memory: what logs told of, each since the start.
    """

    def __init__(
        self,
        reader: VitalsReader,
        device_names: Callable[[], Sequence[str]],
        round_trip_ms: Callable[[], float | None],
        crashes: Callable[[], int],
        errors: Callable[[], int],
        out_of_memory: Callable[[], int],
    ) -> None:
        self._reader = reader
        self._device_names = device_names
        self._round_trip_ms = round_trip_ms
        self._crashes = crashes
        self._errors = errors
        self._out_of_memory = out_of_memory
        self._failed: dict[str, int] = {}
        self._failed_before = 0  # of stages that are gone

    def told(self, stages: Iterable[stage_pb2.StageStatus]) -> telemetry_pb2.NodeTelemetry:
        """The newest of everything; a next reading of the machine begins. stages: as the heartbeat has them."""
        statuses = list(stages)
        newest = self._reader.newest
        self._reader.refresh()
        names = self._device_names()
        return telemetry_pb2.NodeTelemetry(
            devices=[
                _device(index, newest.devices[name]) for index, name in enumerate(names) if name in newest.devices
            ],
            leader_round_trip_ms=self._round_trip_ms(),
            peers=[_peer(status) for status in statuses if status.HasField("link_round_trip_ms")],
            out_of_memory_count=self._out_of_memory(),
            error_count=self._errors() + self._count_failed(statuses),
            stage_crash_count=self._crashes(),
            cpu_busy_share=newest.cpu_busy_share,
            memory_free_bytes=newest.memory_free_bytes,
            disk_free_bytes=newest.disk_free_bytes,
        )

    def _count_failed(self, statuses: Sequence[stage_pb2.StageStatus]) -> int:
        """Replies that failed in stages of this process, those that are gone included."""
        now = {status.spec.placement_id: status.failed for status in statuses}
        self._failed_before += sum(count for stage, count in self._failed.items() if now.get(stage, -1) < count)
        self._failed = now
        return self._failed_before + sum(now.values())


def _device(index: int, vitals: DeviceVitals) -> telemetry_pb2.DeviceTelemetry:
    return telemetry_pb2.DeviceTelemetry(
        device_index=index,
        busy_share=vitals.busy_share,
        temperature_c=vitals.temperature_c,
        power_w=vitals.power_w,
    )


def _peer(status: stage_pb2.StageStatus) -> telemetry_pb2.PeerRoundTrip:
    """The next stage of a ring."""
    following = (status.spec.stage_index + 1) % max(1, status.spec.stage_count)
    return telemetry_pb2.PeerRoundTrip(
        placement_id=status.spec.placement_id, stage_index=following, round_trip_ms=status.link_round_trip_ms
    )
