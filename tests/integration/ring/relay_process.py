"""A relay in a process of its own, as `swarm-leader relay` runs it, so that its memory can be told."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from swarm_rpc.channel import dial

from tests.e2e.swarm import free_port

START_S = 60.0


@dataclass(frozen=True)
class RunningRelay:
    """Where it is."""

    address: str
    pid: int


@asynccontextmanager
async def start_relay(port: int = 0) -> AsyncIterator[RunningRelay]:
    """Killed with the block. port: 0 takes a free one."""
    port = port or free_port()
    env = {**os.environ, "SWARM_LEADER_HOST": "127.0.0.1", "SWARM_GRPC_PORT": str(port), "SWARM_LOG_LEVEL": "WARNING"}
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "swarm_leader", "relay", env=env)
    try:
        async with asyncio.timeout(START_S), dial(f"127.0.0.1:{port}") as channel:
            await channel.channel_ready()
        yield RunningRelay(f"127.0.0.1:{port}", process.pid)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
