"""How the machine itself does: load, heat, power, room. Read in a thread, as drivers and disks may hang."""

import contextlib
import shutil
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import structlog

log = structlog.get_logger()
# psutil's names of sensors inside a processor, over the makers.
_PROCESSOR_SENSORS = ("coretemp", "k10temp", "zenpower", "cpu_thermal", "soc_thermal")


@dataclass(frozen=True)
class DeviceVitals:
    """One device. None: it cannot say."""

    busy_share: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None


@dataclass(frozen=True)
class MachineVitals:
    """The machine. devices: by the names they are reported by ("cuda:0", "cpu")."""

    devices: dict[str, DeviceVitals] = field(default_factory=dict)
    cpu_busy_share: float | None = None
    memory_free_bytes: int | None = None
    disk_free_bytes: int | None = None


class VitalsReader:
    """The newest reading, and a next one when it is asked for. A reading that hangs is not begun beside another.

    device_names: of the devices stages may use. folder: whose disk counts, the model cache's.
    """

    def __init__(self, device_names: Callable[[], Sequence[str]], folder: Path) -> None:
        self.newest = MachineVitals()
        self._device_names = device_names
        self._folder = folder
        self._reading: threading.Thread | None = None
        self._has_read = False

    def refresh(self) -> None:
        """Begin a reading, in a thread of its own that nobody waits for; costs 0.1 ms."""
        if self._reading is None or not self._reading.is_alive():
            self._reading = threading.Thread(target=self._read, name="vitals", daemon=True)
            self._reading.start()

    def _read(self) -> None:
        try:
            share = psutil.cpu_percent(interval=None) / 100  # since the reading before: the first means nothing
            busy_share, self._has_read = min(1.0, share) if self._has_read else None, True
            self.newest = read_vitals(self._device_names(), self._folder, busy_share)
        except Exception as error:  # a driver may raise anything; the machine then says nothing of itself
            log.debug("vital signs cannot be read", why=str(error))
            self.newest = MachineVitals()


def read_vitals(device_names: Sequence[str], folder: Path, busy_share: float | None) -> MachineVitals:
    """One reading. busy_share: of the processors, by whoever counts; None is unknown."""
    devices = {"cpu": DeviceVitals(busy_share, _processor_temperature_c())}
    devices |= _cards([name for name in device_names if name.startswith("cuda:")])
    return MachineVitals(
        devices={name: devices[name] for name in device_names if name in devices},
        cpu_busy_share=busy_share,
        memory_free_bytes=psutil.virtual_memory().available,
        disk_free_bytes=_disk_free_bytes(folder),
    )


def _cards(names: Sequence[str]) -> dict[str, DeviceVitals]:
    """Cards by NVML, in the same order as hardware reads them; nothing without a driver."""
    if not names:
        return {}
    import pynvml

    with contextlib.suppress(pynvml.NVMLError):
        pynvml.nvmlInit()
        try:
            handles = {name: pynvml.nvmlDeviceGetHandleByIndex(int(name.partition(":")[2])) for name in names}
            return {name: _card(pynvml, handle) for name, handle in handles.items()}
        finally:
            pynvml.nvmlShutdown()
    return {}


def _card(nvml: ModuleType, handle: Any) -> DeviceVitals:
    def told(ask: Callable[[], float]) -> float | None:
        with contextlib.suppress(nvml.NVMLError):  # a laptop's card tells no power
            return ask()
        return None

    return DeviceVitals(
        busy_share=told(lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100),
        temperature_c=told(lambda: float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))),
        power_w=told(lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000),
    )


def _processor_temperature_c() -> float | None:
    """The hottest sensor of the processor; None where there is none to read."""
    sensors = psutil.sensors_temperatures() if hasattr(psutil, "sensors_temperatures") else {}
    return max((one.current for name in _PROCESSOR_SENSORS for one in sensors.get(name, ())), default=None)


def _disk_free_bytes(folder: Path) -> int | None:
    """Of the disk on which a folder is, or will be."""
    for at in (folder, *folder.parents):
        with contextlib.suppress(OSError):
            return shutil.disk_usage(at).free
    return None
