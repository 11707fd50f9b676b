"""Matrix products by the library that multiplies faster on this processor: torch's own or numpy's. Holds no weights.

torch's CPU build brings MKL, whose kernels are made for another maker's processors than AMD's; numpy brings OpenBLAS.
Measured on an AMD EPYC (AVX2), the layers of SmolLM2, one thread (docs/measurements/2026-11-many-requests.md): 1 row
20 ms against 25, 8 rows 50 against 69, 256 rows 571 against 737; but 2 and 3 rows 47 and 66 against 37 and 46. With two
threads all is slower, because OpenBLAS keeps a pool of its own that fights torch's.
"""

from functools import cache
from pathlib import Path

import torch
from threadpoolctl import threadpool_limits

ROWS_OF_TORCH = (2, 3)  # where OpenBLAS has no kernel of its own


def limit_threads(threads: int) -> None:
    """Let numpy's products use so many threads, 0 as many as torch does."""
    threadpool_limits(limits=threads or torch.get_num_threads(), user_api="blas")


def is_numpy_faster() -> bool:
    """Whether numpy's products are the faster ones here, float32 on a CPU understood.

    By the maker and not by a measurement: two stages of one machine must round alike. Asked when a slice is built,
    after its threads are set.
    """
    return torch.get_num_threads() == 1 and torch.backends.mkl.is_available() and _is_amd()


@cache
def _is_amd() -> bool:
    cpuinfo = Path("/proc/cpuinfo")
    return cpuinfo.is_file() and "AuthenticAMD" in cpuinfo.read_text()


class Multiplier:
    """x_NI -> x W, for one matrix that stays where it is."""

    def __init__(self, weight_IO: torch.Tensor, by_numpy: bool | None = None) -> None:
        """by_numpy: None goes by the processor. Only float32 on a CPU is numpy's."""
        self._weight_IO = weight_IO
        is_plain = weight_IO.dtype is torch.float32 and weight_IO.device.type == "cpu"
        by_numpy = is_numpy_faster() if by_numpy is None else by_numpy
        self._view_IO = weight_IO.numpy() if is_plain and by_numpy else None

    def __call__(self, x_NI: torch.Tensor) -> torch.Tensor:
        """[N, O]."""
        if self._view_IO is None or x_NI.shape[0] in ROWS_OF_TORCH:
            return torch.mm(x_NI, self._weight_IO)
        return torch.from_numpy(x_NI.numpy() @ self._view_IO)

    def added_to(self, base_NO: torch.Tensor, x_NI: torch.Tensor) -> torch.Tensor:
        """base + x W, [N, O]. base may be one row for all, and stays as it is."""
        if self._view_IO is None or x_NI.shape[0] in ROWS_OF_TORCH:
            return torch.addmm(base_NO, x_NI, self._weight_IO)
        return torch.from_numpy(x_NI.numpy() @ self._view_IO).add_(base_NO)
