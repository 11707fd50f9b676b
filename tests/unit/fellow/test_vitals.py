"""What a heartbeat tells of a machine's health: what is known, and nothing that is not."""

import threading
import time
from pathlib import Path

from silentswarm.core.v1 import stage_pb2
from swarm_fellow.flows.vitals import Vitals
from swarm_fellow.host.vitals import DeviceVitals, MachineVitals, VitalsReader, read_vitals

DEVICES = ("cuda:0", "cpu")


def status(placement_id: str, failed: int = 0, **told: float) -> stage_pb2.StageStatus:
    """A stage's figures."""
    spec = stage_pb2.StageSpec(placement_id=placement_id, stage_index=1, stage_count=2)
    return stage_pb2.StageStatus(spec=spec, failed=failed, **told)


def vitals(reader: VitalsReader, round_trip_ms: float | None = None, errors: int = 0) -> Vitals:
    """Of a machine with a card and no counted trouble."""
    return Vitals(reader, lambda: DEVICES, lambda: round_trip_ms, lambda: 3, lambda: errors, lambda: 0)


def test_what_cannot_be_read_is_absent(tmp_path: Path):
    told = vitals(VitalsReader(lambda: DEVICES, tmp_path)).told([])

    assert list(told.devices) == []
    for name in ("leader_round_trip_ms", "cpu_busy_share", "memory_free_bytes", "disk_free_bytes"):
        assert not told.HasField(name)
    assert (told.stage_crash_count, told.error_count, told.out_of_memory_count) == (3, 0, 0)


def test_devices_are_told_by_their_place_among_those_reported(tmp_path: Path):
    reader = VitalsReader(lambda: DEVICES, tmp_path)
    reader.newest = MachineVitals({"cpu": DeviceVitals(busy_share=0.25)}, 0.25, 2**30, 2**40)

    told = vitals(reader, round_trip_ms=11.5).told([status("p", link_round_trip_ms=4.0), status("q")])

    assert [(device.device_index, device.busy_share) for device in told.devices] == [(1, 0.25)]
    assert not told.devices[0].HasField("temperature_c")
    assert [(peer.placement_id, peer.stage_index, peer.round_trip_ms) for peer in told.peers] == [("p", 0, 4.0)]
    assert (told.leader_round_trip_ms, told.memory_free_bytes, told.disk_free_bytes) == (11.5, 2**30, 2**40)


def test_replies_that_failed_count_on_when_their_stage_is_gone_or_loaded_anew(tmp_path: Path):
    machine = vitals(VitalsReader(lambda: DEVICES, tmp_path), errors=10)
    stages = ([status("p", 2)], [status("p", 5), status("q", 1)], [status("q", 1)], [status("q", 0)], [status("q", 1)])

    assert [machine.told(held).error_count for held in stages] == [12, 16, 16, 16, 17]


def test_this_machine_can_be_read(tmp_path: Path):
    read = read_vitals(("cpu",), tmp_path / "not" / "there" / "yet", busy_share=0.5)

    assert read.devices["cpu"].busy_share == 0.5
    assert read.memory_free_bytes > 2**20
    assert read.disk_free_bytes > 0


def test_a_reading_that_hangs_holds_up_no_heartbeat_and_is_not_begun_twice(tmp_path: Path):
    may_go_on, begun = threading.Event(), []

    def names():
        begun.append(1)
        may_go_on.wait(10)
        return ("cpu",)

    reader = VitalsReader(names, tmp_path)
    told_s = time.perf_counter()
    for _ in range(50):
        reader.refresh()
    told_s = time.perf_counter() - told_s
    may_go_on.set()
    reader._reading.join(10)

    assert told_s < 1
    assert len(begun) == 1
    assert reader.newest.memory_free_bytes > 0


def test_a_heartbeats_telemetry_costs_less_than_5_ms(tmp_path: Path):
    machine = vitals(VitalsReader(lambda: ("cpu",), tmp_path))
    held = [status(f"p{number}", link_round_trip_ms=1.0) for number in range(4)]
    machine.told(held)
    costs_s = []
    for _ in range(20):
        began_s = time.perf_counter()
        machine.told(held)
        costs_s.append(time.perf_counter() - began_s)

    assert sorted(costs_s)[len(costs_s) // 2] < 0.005
