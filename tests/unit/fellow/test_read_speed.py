"""How fast memory is read: what is measured, within which time, and when it stays unknown."""

import itertools
import time
from pathlib import Path

import pytest
from swarm_fellow.host.hardware import Hardware, card_read_bytes_per_s
from swarm_fellow.host.hardware_reader import HardwareReader
from swarm_fellow.host.read_speed import buffer_bytes_for, last_level_cache_bytes, measure
from swarm_fellow.rpc.convert import devices_to_proto

MIB = 2**20


def cache(cpus: Path, cpu: int, index: int, level: int, size: str, shared: str) -> None:
    folder = cpus / f"cpu{cpu}" / "cache" / f"index{index}"
    folder.mkdir(parents=True)
    (folder / "level").write_text(f"{level}\n")
    (folder / "size").write_text(f"{size}\n")
    (folder / "shared_cpu_list").write_text(f"{shared}\n")


def test_the_caches_of_the_last_level_count_once_each(tmp_path: Path):
    """Two complexes of two processors, each with a third level of its own."""
    for cpu, shared in enumerate(["0-1", "0-1", "2-3", "2-3"]):
        cache(tmp_path, cpu, 0, 1, "32K", str(cpu))
        cache(tmp_path, cpu, 3, 3, "16384K", shared)
    (tmp_path / "cpu0" / "cache" / "index4").mkdir()

    assert last_level_cache_bytes(tmp_path) == 2 * 16 * MIB
    assert last_level_cache_bytes(tmp_path / "none") == 0


@pytest.mark.parametrize(
    ("caches", "available", "buffer"),
    [
        (16 * MIB, 2**33, 64 * MIB),
        (0, 2**33, 32 * MIB),
        (200 * MIB, 2**33, 512 * MIB),
        (300 * MIB, 2**33, None),
        (16 * MIB, 2**28, None),
    ],
    ids=["ordinary", "unknown", "large", "too large", "short of memory"],
)
def test_the_buffer_is_larger_than_the_caches_and_small_beside_what_is_free(caches, available, buffer):
    assert buffer_bytes_for(caches, available) == buffer


def test_the_fastest_pass_counts():
    """Passes of 4, 1 and 2 seconds by a clock that ticks so."""
    ticks = itertools.accumulate([100.0, 0, 4, 0, 0, 1, 0, 0, 2, 0], initial=0.0)
    next(ticks)

    assert measure(8 * MIB, 2, 6.5, lambda: next(ticks)) == 8 * MIB / 1.0


async def test_a_processor_s_speed_shows_in_a_reading_once_it_was_measured():
    reader = HardwareReader(Hardware(0, "cpu"))
    (before,) = devices_to_proto(await reader.devices(0))
    reader.begin_measuring(2)
    deadline_s = time.monotonic() + 20
    after = before
    while not after.HasField("read_bytes_per_s"):
        assert time.monotonic() < deadline_s, "it was never measured"
        (after,) = devices_to_proto(await reader.devices(0))

    assert not before.HasField("read_bytes_per_s")
    assert 1e8 < after.read_bytes_per_s < 1e13


class Driver:
    """As much of a card's driver as says how fast its memory is; clock_mhz None is a driver that does not know."""

    NVML_CLOCK_MEM = 2
    NVMLError = LookupError

    def __init__(self, clock_mhz: int | None, bus_bits: int) -> None:
        self._clock_mhz, self._bus_bits = clock_mhz, bus_bits

    def nvmlDeviceGetMaxClockInfo(self, handle: object, clock: int) -> int:
        if self._clock_mhz is None:
            raise LookupError("not supported")
        return self._clock_mhz

    def nvmlDeviceGetMemoryBusWidth(self, handle: object) -> int:
        return self._bus_bits


@pytest.mark.parametrize(
    ("clock_mhz", "bus_bits", "gigabytes"), [(9751, 384, 936), (5001, 256, 320), (1215, 5120, 1555), (6001, 192, 288)]
)
def test_a_card_s_speed_is_what_its_maker_says(clock_mhz: int, bus_bits: int, gigabytes: int):
    """RTX 3090, T4, A100 40 GB, GTX 1660 Ti."""
    speed = card_read_bytes_per_s(Driver(clock_mhz, bus_bits), None)

    assert speed is not None and round(speed / 1e9) == gigabytes


@pytest.mark.parametrize(("clock_mhz", "bus_bits"), [(None, 384), (0, 384), (9751, 0)])
def test_a_card_that_does_not_say_stays_unknown(clock_mhz: int | None, bus_bits: int):
    assert card_read_bytes_per_s(Driver(clock_mhz, bus_bits), None) is None
