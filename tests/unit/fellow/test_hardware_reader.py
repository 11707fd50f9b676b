"""What is free, when a control group limits it and when a driver hangs or fails."""

import asyncio
import threading
import time
from pathlib import Path

import psutil
import pytest
from swarm_core.errors import BadRequest
from swarm_fellow.host.cgroup import memory_left_bytes
from swarm_fellow.host.hardware import DeviceReading, Hardware, read_processor
from swarm_fellow.host.hardware_reader import HardwareReader

CARD = DeviceReading("cuda:0", "a card", 8 * 2**30, 6 * 2**30, "8.6", "BF16")


class ScriptedHardware(Hardware):
    """A card whose driver hangs until it is let go, or fails with what it is told."""

    def __init__(self) -> None:
        self.driver_answers = threading.Event()
        self.driver_answers.set()
        self.failure: Exception | None = None
        self.readings = 0
        super().__init__(0, "")

    def read_devices(self, held_bytes: int) -> tuple[DeviceReading, ...]:
        self.readings += 1
        self.driver_answers.wait(30)
        if self.failure:
            raise self.failure
        self.seen = (CARD,)
        return self.seen


async def test_a_driver_that_hangs_is_asked_once_and_its_figures_are_unknown_meanwhile():
    hardware = ScriptedHardware()
    reader = HardwareReader(hardware, timeout_s=0.05)
    hardware.driver_answers.clear()
    began_s, readings_before = time.monotonic(), hardware.readings
    hung = [await reader.devices(0) for _ in range(5)]
    machine = await reader.machine(0)
    chosen = await reader.choose_device()
    took_s, readings = time.monotonic() - began_s, hardware.readings - readings_before
    hardware.driver_answers.set()

    assert readings == 1 and took_s < 5
    assert {(device.name, device.memory_free_bytes) for devices in hung for device in devices} == {("cuda:0", None)}
    assert machine.devices[0].memory_total_bytes == CARD.memory_total_bytes and machine.memory_total_bytes > 0
    assert chosen == "cuda:0"
    assert await HardwareReader(hardware).devices(0) == (CARD,)


class WatchedReader(HardwareReader):
    """Shows the reading it waits for."""

    begun: "asyncio.Future[tuple[DeviceReading, ...]]"

    def _begin(self, held_bytes: int) -> "asyncio.Future[tuple[DeviceReading, ...]]":
        self.begun = super()._begin(held_bytes)
        return self.begun


async def test_who_is_cancelled_as_the_reading_comes_is_cancelled():
    """asyncio.wait_for returns the reading then, and a fellow that was told to stop served on for ever."""
    hardware = ScriptedHardware()
    reader = WatchedReader(hardware)
    hardware.driver_answers.clear()
    waiting = asyncio.create_task(reader.devices(0))
    await asyncio.sleep(0)
    reader.begun.add_done_callback(lambda _: waiting.cancel())
    hardware.driver_answers.set()

    with pytest.raises(asyncio.CancelledError):
        await waiting


@pytest.mark.parametrize("failure", [BadRequest("SWARM_STAGE_DEVICE=cuda:0 is not here"), OSError("no such driver")])
async def test_a_reading_that_fails_is_unknown_and_the_next_one_counts_again(failure: Exception):
    hardware = ScriptedHardware()
    reader = HardwareReader(hardware)
    hardware.failure = failure
    failed = await reader.devices(0)
    hardware.failure = None

    assert [(device.name, device.memory_free_bytes) for device in failed] == [("cuda:0", None)]
    assert await reader.devices(0) == (CARD,)


def control_group(folder: Path, limit: str, current_bytes: int, cached_bytes: int = 0) -> None:
    """A group's folder as the kernel shows it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text(f"{current_bytes}\n")
    (folder / "memory.stat").write_text(f"anon 1\nactive_file {cached_bytes // 2}\ninactive_file {cached_bytes // 2}\n")


def left_in(root: Path, membership: str) -> int | None:
    """What the group of a process with this membership has left."""
    (root / "membership").write_text(membership)
    return memory_left_bytes(root, root / "membership")


def test_a_control_group_s_limit_counts_cached_files_as_free(tmp_path: Path):
    control_group(tmp_path / "box", "1000", 700, cached_bytes=400)

    assert left_in(tmp_path, "4:memory:/old\n0::/box\n") == 700


def test_the_tightest_limit_around_a_group_counts(tmp_path: Path):
    control_group(tmp_path / "box", "1000", 900)
    control_group(tmp_path / "box" / "fellow", "max", 100)
    control_group(tmp_path / "box" / "fellow" / "stages", "5000", 100)

    assert left_in(tmp_path, "0::/box/fellow/stages\n") == 100


@pytest.mark.parametrize("membership", ["0::/free\n", "0::/nowhere\n", "4:memory:/old\n", "", "0::/../../etc\n"])
def test_without_a_limit_that_can_be_read_nothing_is_limited(tmp_path: Path, membership: str):
    control_group(tmp_path / "free", "max", 100)

    assert left_in(tmp_path, membership) is None


def test_what_a_control_group_leaves_limits_what_is_free_and_lent():
    assert read_processor(0, 0, 5 * 2**20).memory_free_bytes == 5 * 2**20
    assert read_processor(3 * 2**20, 0, 5 * 2**20).memory_free_bytes == 3 * 2**20
    assert read_processor(0, 0, 2**62).memory_free_bytes < psutil.virtual_memory().total
