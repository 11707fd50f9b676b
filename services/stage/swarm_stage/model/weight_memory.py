"""Memory for weights on large pages, where the system has them. It is read faster; nothing else changes."""

import ctypes
import math
import sys
from collections.abc import Sequence

import torch

PAGE_BYTES = 2 * 2**20  # of a large page on x86-64 and, mostly, on arm64
_MADV_HUGEPAGE = 14  # <sys/mman.h> of Linux
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def empty_weight(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """An uninitialised tensor that is written once and read for every token.

    A product walks through a matrix of many pages, and finding small ones takes it 3 to 8 % of its time
    (docs/measurements/2026-11-many-requests.md). Only whole large pages are asked for, so that none is half empty;
    a system that has none to give gives small ones.
    """
    needed_bytes = math.prod(shape) * dtype.itemsize
    if device.type != "cpu" or _libc is None or needed_bytes < PAGE_BYTES:
        return torch.empty(tuple(shape), dtype=dtype, device=device)
    room = torch.empty(needed_bytes + PAGE_BYTES, dtype=torch.uint8)  # what is skipped is never touched
    skipped = -room.data_ptr() % PAGE_BYTES
    whole_bytes = needed_bytes // PAGE_BYTES * PAGE_BYTES
    _libc.madvise(ctypes.c_void_p(room.data_ptr() + skipped), ctypes.c_size_t(whole_bytes), _MADV_HUGEPAGE)
    return room[skipped : skipped + needed_bytes].view(dtype).view(tuple(shape))
