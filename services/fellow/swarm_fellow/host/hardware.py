"""What this machine has and what is free of it now. Processor by psutil, cards by their driver; never torch."""

import contextlib
import importlib.util
import os
import platform
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import psutil

MIB = 2**20


@dataclass(frozen=True)
class DeviceReading:
    """One device that can hold a stage. name: "cpu" or "cuda:0". Bytes; None is unknown, never 0."""

    name: str
    model: str
    memory_total_bytes: int | None
    memory_free_bytes: int | None
    compute_capability: str
    compute_dtype: str

    @property
    def kind(self) -> str:
        """ "cpu" or "cuda"."""
        return self.name.partition(":")[0]


@dataclass(frozen=True)
class MachineReading:
    """The machine, with its devices; stages run on the first."""

    hostname: str
    platform: str
    cpu_count: int
    memory_total_bytes: int
    devices: tuple[DeviceReading, ...]


class Hardware:
    """Reads the machine; each reading takes some milliseconds.

    lent_bytes: main memory lent, 0 lends what is available. device: where stages must run; empty chooses once, at
    the first reading: the card with the most free memory, else the processor.
    """

    def __init__(self, lent_bytes: int, device: str) -> None:
        self._lent_bytes = lent_bytes
        self._device = device

    @property
    def stage_device(self) -> str:
        """Where stages run: "cpu" or "cuda:0"."""
        return self._device or self.read_devices()[0].name

    def read(self) -> MachineReading:
        """The whole machine."""
        return MachineReading(
            hostname=socket.gethostname(),
            platform=f"{platform.system()} {platform.release()} {platform.machine()}",
            cpu_count=cpu_count(),
            memory_total_bytes=psutil.virtual_memory().total,
            devices=self.read_devices(),
        )

    def read_devices(self) -> tuple[DeviceReading, ...]:
        """Every device with its live figures, the one for stages first."""
        devices = [*read_cards(), read_processor(self._lent_bytes)]
        if not self._device:
            cards = [device for device in devices if device.kind == "cuda"]
            best = max(cards, key=lambda card: card.memory_free_bytes or 0) if cards else devices[-1]
            self._device = best.name
        devices.sort(key=lambda device: device.name != self._device)
        return tuple(devices)


def cpu_count() -> int:
    """Processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def read_processor(lent_bytes: int) -> DeviceReading:
    """The processor with its memory: free is what is available, and at most what is lent."""
    memory = psutil.virtual_memory()
    free_bytes = min(memory.available, lent_bytes) if lent_bytes else memory.available
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
    )


def _processor_name() -> str:
    """The maker's name, from the kernel where it says so."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
