"""Work that never ends: what fails is begun again, and what ends well is over."""

import asyncio

from swarm_leader.flows.tasks import begin_again


async def test_work_that_fails_is_begun_again_until_it_ends_well():
    """The loop that judges leases must not be ended by one report of one machine that nobody thought of."""
    begun: list[int] = []

    async def fragile() -> None:
        begun.append(len(begun))
        if len(begun) < 3:
            raise ValueError("nobody thought of this")

    async with asyncio.timeout(5):
        await begin_again(fragile, "fragile", again_s=0.0)

    assert begun == [0, 1, 2]


async def test_work_that_is_cancelled_is_not_begun_again():
    begun: list[int] = []

    async def endless() -> None:
        begun.append(len(begun))
        await asyncio.Event().wait()

    task = asyncio.create_task(begin_again(endless, "endless", again_s=0.0))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task}, timeout=5)

    assert task.cancelled() and begun == [0]
