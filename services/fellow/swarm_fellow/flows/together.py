"""Things that live and die together: the first that ends, ends the others."""

import asyncio
from collections.abc import Coroutine
from typing import Any


async def run_until_first(*works: Coroutine[Any, Any, Any]) -> None:
    """Run all until one returns or raises, then cancel the others and wait for them. Raises what the first raised."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in ended:
        task.result()
