"""Runs a real fellow beside a test, in this process, with stand-in stages."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
from swarm_fellow.__main__ import STAGE_COMMAND, compose
from swarm_fellow.config import read_config
from swarm_fellow.flows.fellow import Fellow
from swarm_fellow.host.identity import StateFolder

STAND_IN = Path(__file__).parent / "stand_in"


def environment(habits: str = "", **variables: str) -> dict[str, str]:
    """An environment whose `python -m swarm_stage` is the stand-in."""
    path = f"{STAND_IN}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    inherited = {name: text for name, text in os.environ.items() if not name.startswith("SWARM_")}
    quiet = {"SWARM_STAGE_SPARE": "off", "SWARM_FELLOW_BENCHMARK": "off"}  # tests count stage processes
    return inherited | quiet | {"PYTHONPATH": path, "STAND_IN": habits} | variables


@contextlib.asynccontextmanager
async def running_fellow(leader: str, folder: Path, habits: str = "", **variables: str) -> AsyncIterator[Fellow]:
    """A fellow that has begun; at the end it is stopped."""
    environ = environment(habits, **variables)
    config = read_config(
        {"SWARM_FELLOW_MODEL_CACHE": str(folder / "models")} | environ,
        leader=leader,
        name="kitchen",
        state_dir=folder / "state",
    )
    stop = asyncio.Event()
    with StateFolder(config.state_dir) as state:
        fellow = compose(config, state, environ, STAGE_COMMAND)
        living = asyncio.create_task(fellow.run(stop))
        try:
            yield fellow
        finally:
            stop.set()
            await asyncio.wait_for(living, 20)


def stage_pids(parent: int | None = None) -> list[int]:
    """Stand-in stages that are children of a process, by default of this one.

    Only fellows started with environment() have such children; stages of a real swarm beside these tests do not count.
    """
    pids = []
    for child in psutil.Process(parent).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            is_stage = "swarm_stage" in child.cmdline() and "STAND_IN" in child.environ()
            if is_stage and child.status() != psutil.STATUS_ZOMBIE:
                pids.append(child.pid)
    return pids
