"""What is installed for the stages, and what the processor can do. Imports none of it: torch stays out of a fellow."""

import contextlib
import importlib.metadata
import sys
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")


def is_installed(distribution: str) -> bool:
    """Whether this interpreter, which also runs the stages, has a distribution."""
    try:
        importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def processor_flags(cpuinfo: Path = CPUINFO) -> frozenset[str]:
    """Instruction sets as the kernel names them ("avx2"); empty where it does not say."""
    if not sys.platform.startswith("linux"):
        return frozenset()
    with contextlib.suppress(OSError):
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("flags"):
                return frozenset(line.partition(":")[2].split())
    return frozenset()
