"""Measures once how fast this machine's devices multiply, beside everything else, and keeps it. Judges nothing."""

import asyncio
import contextlib
import json
import math
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import structlog
from swarm_core.clock import Clock
from swarm_core.errors import DiskFull
from swarm_core.private_file import write_private

from swarm_fellow.host.hardware import DeviceReading
from swarm_fellow.host.products import ProductSpeeds

log = structlog.get_logger()

KEPT_NAME = "benchmark.json"
KEPT_S = 30 * 86_400.0  # then it is measured anew at the next start: a machine may have been busy, or cooled worse
PROCESSOR_TIMEOUT_S = 10.0  # half a second of products, on a machine that is busy with others
CARD_TIMEOUT_S = 60.0  # most of it is the import of torch
ANSWER_BYTES_MAX = 4096
PROCESSOR_COMMAND = (sys.executable, "-m", "swarm_fellow.host.products")
CARD_COMMAND = (sys.executable, "-m", "swarm_stage", "benchmark", "--device")
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS")


class Benchmark:
    """Product speeds by device. threads: of a stage on the processor. environ: of the commands."""

    def __init__(
        self,
        state_dir: Path,
        threads: int,
        environ: Mapping[str, str],
        clock: Clock,
        processor_command: Sequence[str] = PROCESSOR_COMMAND,
        card_command: Sequence[str] = CARD_COMMAND,
    ) -> None:
        self._file = state_dir / KEPT_NAME
        self._threads = threads
        self._environ = dict(environ) | dict.fromkeys(THREAD_VARIABLES, str(threads))
        self._clock = clock
        self._commands = {"cpu": tuple(processor_command), "cuda": tuple(card_command)}

    async def speeds(self, devices: Iterable[DeviceReading]) -> dict[str, ProductSpeeds]:
        """By device name: as kept for this very hardware, else measured now, one device after another.

        What cannot be measured is left out. Never raises; cancelled, it ends what it started.
        """
        kept, found, is_new = await asyncio.to_thread(self._read), {}, False
        for device in devices:
            key = f"{device.kind} {device.model} threads={self._threads}"
            entry = kept.get(key)
            if entry is None or not 0 <= self._clock.unix_s() - entry["at_s"] < KEPT_S:
                entry = await self._measure(device)
                if entry is None:
                    continue
                kept[key], is_new = entry, True
            found[device.name] = ProductSpeeds(entry.get("float32_flops"), entry.get("float16_flops"))
        if is_new:
            with contextlib.suppress(DiskFull):  # then it is measured again at the next start
                await asyncio.to_thread(write_private, self._file, json.dumps(kept, indent=1) + "\n")
        return found

    async def _measure(self, device: DeviceReading) -> dict[str, float] | None:
        """One device by its command; None when that fails, says nothing that can be, or takes too long."""
        is_card = device.kind == "cuda"
        command = (*self._commands[device.kind], *((device.name,) if is_card else ()))
        answer = await self._run(command, CARD_TIMEOUT_S if is_card else PROCESSOR_TIMEOUT_S)
        measured = _checked({**answer, "at_s": self._clock.unix_s()}) if answer is not None else None
        if measured is None:
            log.warning("the speed of a device could not be measured", device=device.name)
        else:
            log.info("a device multiplies", device=device.name, **_said(measured))
        return measured

    async def _run(self, command: Sequence[str], timeout_s: float) -> dict[str, Any] | None:
        """The object that a command prints as its last line."""
        try:
            child = await asyncio.create_subprocess_exec(
                *command, env=self._environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        except OSError:
            return None
        try:
            async with asyncio.timeout(timeout_s):
                assert child.stdout is not None
                printed = await child.stdout.read(ANSWER_BYTES_MAX)
                await child.wait()
            answer = json.loads(printed.splitlines()[-1])
        except (TimeoutError, ValueError, IndexError):
            return None
        finally:
            if child.returncode is None:
                child.kill()
                await child.wait()
        return answer if isinstance(answer, dict) else None

    def _read(self) -> dict[str, dict[str, float]]:
        """What was kept; a file that is no such thing counts as none."""
        with contextlib.suppress(OSError, ValueError):
            kept = json.loads(self._file.read_text()[: 2**20])
            if isinstance(kept, dict):
                entries = ((key, _checked(entry)) for key, entry in kept.items())
                return {key: entry for key, entry in entries if entry is not None}
        return {}


def _checked(entry: object) -> dict[str, float] | None:
    """The figures of one device that can be; None without a time or any figure."""
    if not isinstance(entry, dict):
        return None
    figures = {
        name: float(amount)
        for name in ("float32_flops", "float16_flops", "at_s")
        if isinstance(amount := entry.get(name), int | float) and math.isfinite(amount) and amount > 0
    }
    return figures if "at_s" in figures and len(figures) > 1 else None


def _said(measured: Mapping[str, float]) -> dict[str, float]:
    """For the log, in 1e9 operations a second."""
    return {name: round(amount / 1e9, 1) for name, amount in measured.items() if name != "at_s"}
