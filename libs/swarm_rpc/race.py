"""Several waits of which the first to end decides. asyncio only."""

import asyncio
from collections.abc import Coroutine
from typing import Any


async def run_until_first(*coroutines: Coroutine[Any, Any, object]) -> None:
    """Run all until one ends, then cancel the others and wait for them; raises what the first one raised."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
