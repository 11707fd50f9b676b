"""How late an event loop is: the difference between when a timer was due and when it ran. Measures, counts nothing."""

import asyncio
from collections.abc import Callable

INTERVAL_S = 0.25
LAG_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


async def watch_loop_lag(observe: Callable[[float], object], interval_s: float = INTERVAL_S) -> None:
    """Tell the lag, in seconds, four times a second until cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        due_s = loop.time() + interval_s
        await asyncio.sleep(interval_s)
        observe(max(0.0, loop.time() - due_s))
