"""How fast a device multiplies matrices, as one line of JSON for the fellow that asks. Serves nothing."""

import json
import time
from typing import Any

MEASURE_S = 0.5
SIZES = {"cuda": 4096, "cpu": 1024}  # of the square matrices: large enough to be bound by the products
NAMES = {"float32": "float32_flops", "float16": "float16_flops"}


def benchmark(device: str) -> str:
    """Operations a second in float32, and on a card in float16: {"float32_flops": ..., "float16_flops": ...}.

    Of the fastest pass, since others only ever slow one down. A type that the device does not compute in is left out.
    Raises RuntimeError when there is no such device.
    """
    import torch

    figures: dict[str, float] = {}
    with torch.inference_mode():
        for name in NAMES if device != "cpu" else ("float32",):
            flops = _measure(torch, device, getattr(torch, name))
            if flops is not None:
                figures[NAMES[name]] = flops
    return json.dumps(figures)


def _measure(torch: Any, device: str, dtype: Any) -> float | None:
    size = SIZES[device.partition(":")[0]]
    one_SS, other_SS = (torch.full((size, size), value, dtype=dtype, device=device) for value in (0.5, 0.25))

    def pass_s() -> float:
        began_s = time.perf_counter()
        torch.mm(one_SS, other_SS)
        if device != "cpu":
            torch.cuda.synchronize(device)
        return time.perf_counter() - began_s

    try:
        pass_s()  # the first one loads the library's kernels
    except RuntimeError:
        return None
    ends_s, fastest_s = time.perf_counter() + MEASURE_S, pass_s()
    while time.perf_counter() < ends_s:
        fastest_s = min(fastest_s, pass_s())
    return 2 * size**3 / fastest_s
