"""How fast a machine multiplies: what is measured, kept, measured anew, and when it stays unknown."""

import asyncio
import itertools
import json
import os
import sys
from dataclasses import replace

import pytest
from swarm_core.clock import SystemClock
from swarm_fellow.host.benchmark import KEPT_NAME, KEPT_S, Benchmark
from swarm_fellow.host.hardware import DeviceReading, Hardware
from swarm_fellow.host.hardware_reader import HardwareReader
from swarm_fellow.host.products import ProductSpeeds, measure
from swarm_fellow.rpc.convert import devices_to_proto, machine_to_proto

PROCESSOR = DeviceReading("cpu", "a processor", 2**34, 2**33, "", "F32")
CARD = DeviceReading("cuda:0", "a card", 2**34, 2**33, "8.6", "BF16")


class LaterClock(SystemClock):
    """The clock of this machine, some seconds ahead."""

    def __init__(self, ahead_s: float = 0.0) -> None:
        self.ahead_s = ahead_s

    def unix_s(self) -> float:
        return super().unix_s() + self.ahead_s


def says(tmp_path, printed: str) -> tuple[str, ...]:
    """A command that counts its runs and prints this."""
    code = f"open({str(tmp_path / 'runs')!r}, 'a').write('x'); print({printed!r})"
    return (sys.executable, "-c", code)


def runs(tmp_path) -> int:
    """How often it ran."""
    file = tmp_path / "runs"
    return len(file.read_text()) if file.exists() else 0


def make(tmp_path, printed: str, threads: int = 1, ahead_s: float = 0.0) -> Benchmark:
    """A benchmark whose commands print this."""
    command = says(tmp_path, printed)
    return Benchmark(tmp_path, threads, os.environ, LaterClock(ahead_s), command, command)


async def test_what_was_measured_is_kept_over_restarts_for_this_hardware_alone(tmp_path):
    first = await make(tmp_path, '{"float32_flops": 2e11}').speeds([PROCESSOR])
    again = await make(tmp_path, '{"float32_flops": 9e9}').speeds([PROCESSOR])
    other = await make(tmp_path, '{"float32_flops": 5e11}').speeds([replace(PROCESSOR, model="another")])
    threads = await make(tmp_path, '{"float32_flops": 8e11}', threads=4).speeds([PROCESSOR])

    assert first == again == {"cpu": ProductSpeeds(2e11)}
    assert (other["cpu"].float32_flops, threads["cpu"].float32_flops) == (5e11, 8e11)
    assert runs(tmp_path) == 3


async def test_after_a_month_it_is_measured_anew(tmp_path):
    await make(tmp_path, '{"float32_flops": 2e11}').speeds([PROCESSOR])

    later = await make(tmp_path, '{"float32_flops": 3e11}', ahead_s=KEPT_S + 60).speeds([PROCESSOR])

    assert later["cpu"].float32_flops == 3e11


async def test_a_card_has_two_figures_and_is_named_to_its_command(tmp_path):
    named = (sys.executable, "-c", "import sys; assert sys.argv[1] == 'cuda:0'; print('{\"float16_flops\": 7e13}')")
    benchmark = Benchmark(tmp_path, 1, os.environ, SystemClock(), (), named)

    assert await benchmark.speeds([CARD]) == {"cuda:0": ProductSpeeds(None, 7e13)}


@pytest.mark.parametrize(
    "printed", ["", "no json", "[1]", '{"float32_flops": -1}', '{"float32_flops": "fast"}', '{"float32_flops": 1e999}']
)
async def test_what_cannot_be_is_unknown_and_not_kept(tmp_path, printed: str):
    assert await make(tmp_path, printed).speeds([PROCESSOR]) == {}
    assert not (tmp_path / KEPT_NAME).exists()


async def test_a_kept_file_that_is_broken_counts_as_none(tmp_path):
    (tmp_path / KEPT_NAME).write_text('{"cpu a processor threads=1": {"float32_flops": "1"}, "x": 3')

    assert (await make(tmp_path, '{"float32_flops": 2e11}').speeds([PROCESSOR]))["cpu"].float32_flops == 2e11
    assert len(json.loads((tmp_path / KEPT_NAME).read_text())) == 1


async def test_a_command_that_is_not_there_or_called_off_leaves_nothing_running(tmp_path):
    missing = Benchmark(tmp_path, 1, os.environ, SystemClock(), (str(tmp_path / "none"),))
    pid_file = tmp_path / "pid"
    endless = f"import os, time; open({str(pid_file)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    hanging = Benchmark(tmp_path, 1, os.environ, SystemClock(), (sys.executable, "-c", endless))

    assert await missing.speeds([PROCESSOR]) == {}
    task = asyncio.create_task(hanging.speeds([PROCESSOR]))
    async with asyncio.timeout(20):
        while not (pid_file.exists() and pid_file.read_text()):
            await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)


async def test_this_processor_is_measured_within_its_time_by_the_command_itself(tmp_path):
    speeds = await Benchmark(tmp_path, 1, os.environ, SystemClock()).speeds([PROCESSOR])

    assert 1e8 < speeds["cpu"].float32_flops < 1e14


def test_the_fastest_pass_of_the_first_size_that_takes_long_enough_counts():
    """Passes of 1 ms at 256; of 20, 10 and 30 ms at 512."""
    ticks = itertools.accumulate([0, 0.001, 0, 0.02, 0, 0, 0, 0.01, 0, 0, 0.03, 0.5])

    assert measure(lambda size: lambda: None, 0.06, lambda: next(ticks)) == pytest.approx(2 * 512**3 / 0.01)


async def test_figures_show_in_what_a_fellow_says_of_itself_and_unknown_ones_stay_absent():
    reader = HardwareReader(Hardware(0, "cpu"), down_bytes_per_s=lambda: 2e6)
    before = machine_to_proto(await reader.machine(0))
    reader.take_products({"cpu": ProductSpeeds(2e11)})
    reader.leader_round_trip_ms = 12.5
    after = machine_to_proto(await reader.machine(0))
    (beaten,) = devices_to_proto(await reader.devices(0))

    assert not before.HasField("leader_round_trip_ms") and not before.devices[0].HasField("float32_flops")
    assert (after.leader_round_trip_ms, after.leader_down_bytes_per_s) == (12.5, 2e6)
    assert not after.HasField("leader_up_bytes_per_s") and not after.devices[0].HasField("float16_flops")
    assert after.devices[0].float32_flops == beaten.float32_flops == 2e11
