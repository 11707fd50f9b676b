"""Under which conditions figures were measured: machine, versions, load. Reads, changes nothing."""

import os
import platform
import time
from importlib.metadata import version
from pathlib import Path


def cpu_model() -> str:
    """As the kernel names it."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    named = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or "unknown")


def load() -> str:
    """Load averages of 1 and 5 minutes, and how many threads run now."""
    one, five, _ = os.getloadavg()
    running = Path("/proc/loadavg").read_text().split()[3].split("/")[0]
    return f"{one:.2f} (1 min), {five:.2f} (5 min), {running} running"


def machine() -> list[str]:
    """What does not change during a run."""
    versions = ", ".join(f"{name} {version(name)}" for name in ("torch", "transformers", "grpcio", "protobuf"))
    return [
        f"{time.strftime('%Y-%m-%d %H:%M')}, {os.cpu_count()} cores, {cpu_model()}, Linux {platform.release()}",
        f"Python {platform.python_version()}, {versions}",
    ]
