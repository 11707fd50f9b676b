"""What a process that reads hostile files may take: memory, time, disk. Set by itself, before it reads any."""

import contextlib
import resource
from pathlib import Path

_CPU_GRACE_S = 5  # until SIGKILL


def limit_memory(data_bytes: int) -> None:
    """Take at most so much memory of its own; beyond it allocations fail, as MemoryError in Python.

    Read-only mappings of files do not count. Also makes this process the one the kernel ends first when the machine
    runs out of memory, so that it is never its parent, and leaves no dump of its memory behind.
    """
    _lower(resource.RLIMIT_DATA, data_bytes)
    _lower(resource.RLIMIT_CORE, 0)
    with contextlib.suppress(OSError):  # no /proc, or one that may not be written
        Path("/proc/self/oom_score_adj").write_text("1000")


def limit_cpu(seconds: int) -> None:
    """Compute at most so long, over all threads; the kernel ends the process after that, with SIGXCPU."""
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    most = seconds + _CPU_GRACE_S if hard == resource.RLIM_INFINITY else min(seconds + _CPU_GRACE_S, hard)
    resource.setrlimit(resource.RLIMIT_CPU, (min(seconds, most), most))


def limit_file(size_bytes: int) -> None:
    """Write no file larger than that: OSError with EFBIG. May be set again, also to more."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    size_bytes = size_bytes if hard == resource.RLIM_INFINITY else min(size_bytes, hard)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))


def _lower(which: int, most: int) -> None:
    """Set a limit for good, unless a stricter one holds already."""
    _, hard = resource.getrlimit(which)
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(which, (most, most))
