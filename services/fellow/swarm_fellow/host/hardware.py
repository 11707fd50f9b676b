"""What this machine has and what is free of it now. Processor by psutil, cards by their driver; never torch."""

import contextlib
import importlib.util
import os
import platform
import socket
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
from swarm_core.errors import BadRequest

from swarm_fellow.host.cgroup import memory_left_bytes
from swarm_fellow.host.products import NOT_MEASURED, ProductSpeeds

MIB = 2**20


@dataclass(frozen=True)
class DeviceReading:
    """One device that can hold a stage. name: "cpu" or "cuda:0". Bytes; None is unknown, never 0.

    read_bytes_per_s: of its own memory: measured of a processor, of a card what its memory's clock and width come to.
    products: how fast it multiplies matrices.
    """

    name: str
    model: str
    memory_total_bytes: int | None
    memory_free_bytes: int | None
    compute_capability: str
    compute_dtype: str
    read_bytes_per_s: float | None = None
    products: ProductSpeeds = NOT_MEASURED

    @property
    def kind(self) -> str:
        """ "cpu" or "cuda"."""
        return self.name.partition(":")[0]


@dataclass(frozen=True)
class MachineReading:
    """The machine, with the devices that can hold a stage, and how far it is from its leader; None is unknown."""

    hostname: str
    platform: str
    cpu_count: int
    memory_total_bytes: int
    devices: tuple[DeviceReading, ...]
    leader_round_trip_ms: float | None = None
    leader_down_bytes_per_s: float | None = None


class Hardware:
    """Reads the machine; each reading takes some milliseconds.

    lent_bytes: main memory lent, 0 lends what is available. device: the one device stages may use; empty allows all.
    group_left_bytes: what a control group leaves; None is no limit. Raises BadRequest when that device is not here.
    """

    def __init__(
        self, lent_bytes: int, device: str, group_left_bytes: Callable[[], int | None] = memory_left_bytes
    ) -> None:
        self._lent_bytes = lent_bytes
        self._device = device
        self._group_left_bytes = group_left_bytes
        self.processor_read_bytes_per_s: float | None = None  # until somebody has measured it
        self.products: dict[str, ProductSpeeds] = {}  # by device name, likewise
        self.seen = self.read_devices(0)

    def describe(self, devices: Iterable[DeviceReading]) -> MachineReading:
        """The whole machine around these devices; asks no driver."""
        return MachineReading(
            hostname=socket.gethostname(),
            platform=f"{platform.system()} {platform.release()} {platform.machine()}",
            cpu_count=cpu_count(),
            memory_total_bytes=psutil.virtual_memory().total,
            devices=tuple(devices),
        )

    def read_devices(self, held_bytes: int) -> tuple[DeviceReading, ...]:
        """Every device stages may use, cards first, with its live figures.

        held_bytes: main memory our own stages hold, part of what is lent.
        """
        processor = read_processor(self._lent_bytes, held_bytes, self._group_left_bytes())
        devices = (*read_cards(), replace(processor, read_bytes_per_s=self.processor_read_bytes_per_s))
        allowed = tuple(
            replace(device, products=self.products.get(device.name, device.products))
            for device in devices
            if self._device in ("", device.name)
        )
        if not allowed:
            here = ", ".join(device.name for device in devices)
            raise BadRequest(
                f"SWARM_STAGE_DEVICE={self._device} is not here; there is {here}", field="SWARM_STAGE_DEVICE"
            )
        self.seen = allowed
        return allowed

    def without_figures(self) -> tuple[DeviceReading, ...]:
        """The devices as last seen, with what is free unknown."""
        return tuple(replace(device, memory_free_bytes=None) for device in self.seen)


def choose_device(devices: Iterable[DeviceReading]) -> str:
    """Where the next stage runs: the card with the most free memory, else "cpu"; the leader plans with the same."""
    return max(devices, key=lambda device: (device.kind == "cuda", device.memory_free_bytes or 0)).name


def cpu_count() -> int:
    """Processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def read_processor(lent_bytes: int, held_bytes: int, group_left_bytes: int | None) -> DeviceReading:
    """The processor with its memory: free is what is available, and at most what is lent and not held by our stages.

    group_left_bytes: what a control group leaves; None is no limit.
    """
    memory = psutil.virtual_memory()
    free_bytes = memory.available if group_left_bytes is None else min(memory.available, group_left_bytes)
    if lent_bytes:
        free_bytes = min(free_bytes, max(lent_bytes - held_bytes, 0))
    return DeviceReading("cpu", _processor_name(), memory.total, free_bytes, "", "F32")


def read_cards() -> list[DeviceReading]:
    """Every CUDA card a stage could use; none without a driver, or with a torch built without CUDA."""
    if not torch_has_cuda():
        return []
    with contextlib.suppress(ImportError), _driver() as driver:
        return [_read_card(driver, index) for index in range(driver.nvmlDeviceGetCount())]
    return []


def torch_has_cuda() -> bool:
    """Whether the torch that stages will import is built for CUDA; looks for its library instead of importing it."""
    found = importlib.util.find_spec("torch")
    return any(
        any(Path(folder, "lib").glob("*torch_cuda*")) for folder in (found and found.submodule_search_locations) or ()
    )


def compute_dtype(major: int) -> str:
    """What a card of this compute capability computes in: BF16 from 8.x, F16 on 7.x, F32 below."""
    return "BF16" if major >= 8 else "F16" if major == 7 else "F32"


@contextlib.contextmanager
def _driver() -> Iterator[ModuleType]:
    """The card driver's own library while it answers; no cards (ImportError) when it is missing or broken."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise ImportError("no working driver") from error
    try:
        yield pynvml
    except pynvml.NVMLError as error:
        raise ImportError("the driver stopped answering") from error
    finally:
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def _read_card(nvml: ModuleType, index: int) -> DeviceReading:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
    name = nvml.nvmlDeviceGetName(handle)
    return DeviceReading(
        name=f"cuda:{index}",
        model=name if isinstance(name, str) else name.decode(errors="replace"),
        memory_total_bytes=int(memory.total),
        memory_free_bytes=int(memory.free),
        compute_capability=f"{major}.{minor}",
        compute_dtype=compute_dtype(major),
        read_bytes_per_s=card_read_bytes_per_s(nvml, handle),
    )


def card_read_bytes_per_s(nvml: Any, handle: Any) -> float | None:
    """What a card's memory gives at best: its highest clock, twice a tick, as wide as its bus; None is unknown."""
    with contextlib.suppress(nvml.NVMLError):
        clock_mhz = nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_MEM)
        bus_bits = nvml.nvmlDeviceGetMemoryBusWidth(handle)
        return clock_mhz * 1e6 * 2 * bus_bits / 8 or None
    return None


def _processor_name() -> str:
    """The maker's name, from the kernel where it says so."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
