"""How fast processors multiply matrices, measured in a process of its own: `python -m` this prints it. Without torch.

Alone in its process, because the threads of a linear algebra library are set by the environment before it is loaded,
and because it runs at a low priority.
"""

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

MEASURE_S = 0.5  # for the passes of the last size; all sizes before take a tenth of a second
PASS_S = 0.01  # a pass must take this long to be told from the cost of a call
SIZES = (256, 512, 1024, 2048)
NICENESS = 10


@dataclass(frozen=True)
class ProductSpeeds:
    """Operations a second in matrix products. None: not measured, or not computed in."""

    float32_flops: float | None = None
    float16_flops: float | None = None


NOT_MEASURED = ProductSpeeds()


def measure(
    multiply_of: Callable[[int], Callable[[], Any]],
    measure_s: float = MEASURE_S,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Operations a second of the fastest pass; others only ever slow one down. At least one pass.

    multiply_of: what multiplies two square matrices of a size; the smallest that takes PASS_S is measured.
    """
    for size in SIZES:
        multiply = multiply_of(size)
        multiply()  # the first one starts threads and touches pages
        fastest_s = _pass_s(multiply, clock)
        if fastest_s >= PASS_S:
            break
    ends_s = clock() + measure_s
    while clock() < ends_s:
        fastest_s = min(fastest_s, _pass_s(multiply, clock))
    return 2 * size**3 / fastest_s


def _pass_s(multiply: Callable[[], Any], clock: Callable[[], float]) -> float:
    began_s = clock()
    multiply()
    return max(clock() - began_s, 1e-9)


def processor_products(size: int) -> Callable[[], Any]:
    """Two square matrices of float32 and their product."""
    import numpy as np

    one, other = (np.full((size, size), value, dtype=np.float32) for value in (0.5, 0.25))
    product = np.empty_like(one)
    return lambda: np.matmul(one, other, out=product)


if __name__ == "__main__":
    os.nice(NICENESS)
    print(json.dumps({"float32_flops": measure(processor_products)}))
