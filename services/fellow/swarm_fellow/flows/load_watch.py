"""Watches a stage process while it loads: one that is frozen would keep its load waiting to the last second."""

import asyncio

from swarm_core.errors import StageFailed, SwarmError

from swarm_fellow.domain.stillness import Stillness
from swarm_fellow.flows.stages import HeldStage
from swarm_fellow.rpc.convert import describe_stage

LOOK_S = 1.0
STILL_S = 5.0  # then it has 2 s to answer: a frozen load fails within 10 s, as a frozen stage of a ring does


async def watch_load(stage: HeldStage) -> None:
    """Returns never. Raises StageFailed when the process used no processor time for 5 s and does not answer either.

    One that reads from a slow disk, or waits for a driver, answers: its load has the time that the leader gives it.
    """
    assert stage.process is not None
    clock = asyncio.get_running_loop().time
    stillness = Stillness(clock(), stage.process.cpu_s())
    while True:
        await asyncio.sleep(LOOK_S)
        if stillness.look(clock(), stage.process.cpu_s()) < STILL_S:
            continue
        try:
            await stage.client().status()
        except SwarmError as error:
            stage.has_crashed = True  # so that it is killed: asking it to stop would take 10 s more
            raise StageFailed(
                f"the process of {describe_stage(stage.spec)} stopped answering: it used no processor time for "
                f"{STILL_S:g} s of its load, and {error.message}",
                stage=stage.spec.stage_index,
                model=stage.spec.model_id,
            ) from error
