"""Reads the hardware beside the event loop, one reading at a time. A driver that hangs costs one thread and figures."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import structlog

from swarm_fellow.host.hardware import DeviceReading, Hardware, MachineReading, choose_device
from swarm_fellow.host.products import ProductSpeeds
from swarm_fellow.host.read_speed import begin_measuring

log = structlog.get_logger()

READING_TIMEOUT_S = 2.0


class HardwareReader:
    """Live figures, each within timeout_s; what cannot be read is unknown. Never raises.

    A reading that hangs is waited for by the next caller, and no second one is begun beside it.
    down_bytes_per_s: what transfers from the leader brought, None before one.
    """

    def __init__(
        self,
        hardware: Hardware,
        timeout_s: float = READING_TIMEOUT_S,
        down_bytes_per_s: Callable[[], float | None] = lambda: None,
    ) -> None:
        self.leader_round_trip_ms: float | None = None  # until somebody has measured it
        self._hardware = hardware
        self._timeout_s = timeout_s
        self._down_bytes_per_s = down_bytes_per_s
        self._reading: asyncio.Future[tuple[DeviceReading, ...]] | None = None

    async def machine(self, held_bytes: int) -> MachineReading:
        """The whole machine. held_bytes: see Hardware.read_devices."""
        machine = self._hardware.describe(await self.devices(held_bytes))
        return replace(
            machine, leader_round_trip_ms=self.leader_round_trip_ms, leader_down_bytes_per_s=self._down_bytes_per_s()
        )

    async def devices(self, held_bytes: int) -> tuple[DeviceReading, ...]:
        """Every device stages may use; without figures when its driver fails or does not answer in time."""
        if self._reading is None or self._reading.done():
            self._reading = self._begin(held_bytes)
        try:
            async with asyncio.timeout(self._timeout_s):
                return await asyncio.shield(self._reading)
        except TimeoutError:
            log.warning("the hardware did not answer; its figures are unknown", within_s=self._timeout_s)
        except Exception as error:
            log.warning("the hardware could not be read; its figures are unknown", why=str(error))
        return self._hardware.without_figures()

    def begin_measuring(self, threads: int) -> None:
        """Measure how fast the processor reads, with as many threads as a stage has; it shows in a later reading."""
        if any(device.kind == "cpu" for device in self._hardware.seen):
            begin_measuring(threads, self._take_read_speed)

    def _take_read_speed(self, read_bytes_per_s: float | None) -> None:
        if read_bytes_per_s is not None:
            log.info("the processor reads its memory", gigabytes_per_s=round(read_bytes_per_s / 1e9, 1))
        self._hardware.processor_read_bytes_per_s = read_bytes_per_s

    @property
    def seen(self) -> tuple[DeviceReading, ...]:
        """The devices as last seen."""
        return self._hardware.seen

    def take_products(self, products: Mapping[str, ProductSpeeds]) -> None:
        """How fast devices multiply, by their names; it shows in a later reading."""
        self._hardware.products = dict(products)

    def device_names(self) -> tuple[str, ...]:
        """Names of the devices stages may use, in the order in which they are reported."""
        return tuple(device.name for device in self._hardware.seen)

    def card_capabilities(self) -> tuple[str, ...]:
        """Compute capability of every card stages may use ("8.6"); "" of one that does not say."""
        return tuple(device.compute_capability for device in self._hardware.seen if device.kind == "cuda")

    async def choose_device(self) -> str:
        """Where the next stage runs, "cpu" or "cuda:0"."""
        return choose_device(await self.devices(0))

    def _begin(self, held_bytes: int) -> "asyncio.Future[tuple[DeviceReading, ...]]":
        """A thread of its own and no pool's: the interpreter must not wait for it at its end."""
        loop = asyncio.get_running_loop()
        reading: asyncio.Future[tuple[DeviceReading, ...]] = loop.create_future()

        def read() -> None:
            settle: partial[None]
            try:
                settle = partial(reading.set_result, self._hardware.read_devices(held_bytes))
            except Exception as error:
                settle = partial(reading.set_exception, error)
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(settle)

        threading.Thread(target=read, name="hardware", daemon=True).start()
        return reading
