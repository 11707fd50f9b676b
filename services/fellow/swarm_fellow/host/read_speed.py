"""How fast this machine's processors read main memory, measured once a process. Without torch; judges nothing.

Defined as the bytes of one pass over a buffer that no cache holds, read by as many threads as a stage computes with,
per second; the fastest of the passes within READ_S counts, since others only ever slow a pass down.
"""

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import structlog

log = structlog.get_logger()

READ_S = 0.15  # for the passes; the buffer is filled before, in a tenth of a second
THREADS_MAX = 16
BUFFER_BYTES_MIN, BUFFER_BYTES_MAX = 32 * 2**20, 512 * 2**20
TIMES_THE_CACHES = 4  # a quarter of it may lie in caches at the beginning of a pass, and is gone when its turn comes
CPUS = Path("/sys/devices/system/cpu")


def begin_measuring(threads: int, tell: Callable[[float | None], None]) -> None:
    """Measure in a thread of its own and tell the bytes per second; None when they cannot be known."""
    threading.Thread(target=lambda: tell(read_bytes_per_s(threads)), name="read-speed", daemon=True).start()


@functools.cache
def read_bytes_per_s(threads: int) -> float | None:
    """Bytes per second that so many threads read, within 0.3 s; None where caches are too large, memory too short."""
    buffer_bytes = buffer_bytes_for(last_level_cache_bytes(CPUS), psutil.virtual_memory().available)
    if buffer_bytes is None:
        return None
    return measure(buffer_bytes, min(max(threads, 1), THREADS_MAX), READ_S)


def buffer_bytes_for(caches_bytes: int, available_bytes: int) -> int | None:
    """How much to read; None when what fits would mostly be read from caches. caches_bytes: 0 is unknown."""
    wanted_bytes = min(max(TIMES_THE_CACHES * caches_bytes, BUFFER_BYTES_MIN), BUFFER_BYTES_MAX)
    if wanted_bytes > available_bytes // 8 or wanted_bytes < 2 * caches_bytes:
        return None
    return wanted_bytes


def last_level_cache_bytes(cpus: Path) -> int:
    """All caches of the last level together, as the kernel names them; 0 when it does not."""
    largest: dict[str, tuple[int, int]] = {}  # processors that share it -> (level, bytes)
    for index in cpus.glob("cpu[0-9]*/cache/index[0-9]*"):
        with contextlib.suppress(OSError, ValueError):
            level = int((index / "level").read_text())
            size = (index / "size").read_text().strip()
            size_bytes = int(size.rstrip("KMG")) * {"K": 2**10, "M": 2**20, "G": 2**30}.get(size[-1:], 1)
            largest[f"{level} {(index / 'shared_cpu_list').read_text().strip()}"] = (level, size_bytes)
    last = max((level for level, _ in largest.values()), default=0)
    return sum(size_bytes for level, size_bytes in largest.values() if level == last)


def measure(buffer_bytes: int, threads: int, read_s: float, clock: Callable[[], float] = time.perf_counter) -> float:
    """Bytes per second of the fastest pass over a buffer; at least one pass, and none is begun after read_s."""
    import numpy as np

    buffer = np.empty(buffer_bytes // 8, dtype=np.uint64)
    parts = np.array_split(buffer, threads)
    with ThreadPoolExecutor(threads) as pool:

        def each(work: Callable[[Any], object], over: Iterable[Any]) -> None:
            for _ in pool.map(work, over):
                pass

        each(lambda part: part.fill(1), parts)  # pages that were never written are all the same one
        fastest_s, ends_s = float("inf"), clock() + read_s
        while True:
            began_s = clock()
            each(np.maximum.reduce, parts)
            fastest_s = min(fastest_s, clock() - began_s)
            if clock() >= ends_s:
                return buffer.nbytes / fastest_s
