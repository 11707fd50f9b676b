"""CHECK: does a stage's process answer, and which addresses take a connection. Wires nothing."""

import asyncio
import contextlib
import re
from collections.abc import Callable, Sequence

from silentswarm.fellow.v1 import fellow_link_pb2 as link_pb2
from swarm_core.errors import BadRequest, SwarmError
from swarm_core.listen import split_host_port

from swarm_fellow.domain.silence import SILENT_MAX_S, Silence
from swarm_fellow.flows.stages import HeldStage, StageTable
from swarm_fellow.rpc.convert import describe_stage

LOOK_S = 0.25  # between two looks at a process that has not answered yet
CONNECT_S = 1.0
ADDRESSES_MAX = 16
_HOST = re.compile(r"[0-9A-Za-z.:-]{1,253}", re.ASCII)  # an address, or a name as machines have them


async def check(
    table: StageTable, signal: link_pb2.CheckSignal, within_s: float, tell_waiting: Callable[[], None] = lambda: None
) -> link_pb2.CheckDone:
    """Look at a stage and at addresses, beside each other. A stage whose process does not answer is ended as crashed.

    within_s: what all of it may take. tell_waiting: called while a stage that has not answered gets more time. What is
    no address is one that nobody is reached at.
    """
    failure, reached_address = await asyncio.gather(
        _find_failure(table, signal.placement_id, within_s, tell_waiting),
        _first_reached(signal.addresses[:ADDRESSES_MAX], within_s),
    )
    is_alive = bool(signal.placement_id) and not failure
    return link_pb2.CheckDone(is_alive=is_alive, failure=failure, reached_address=reached_address)


async def _find_failure(table: StageTable, placement_id: str, within_s: float, tell_waiting: Callable[[], None]) -> str:
    """Why a stage does not live; "" when it does, and when none is asked after."""
    if not placement_id:
        return ""
    stage = table.find(placement_id)
    if stage is None:
        return f"this fellow holds no loaded stage of placement {placement_id}"
    how = await _listen(stage, within_s, tell_waiting)
    if not how:
        return ""
    table.take_silence(stage, how)
    return f"the process of {describe_stage(stage.spec)} {how}"


async def _listen(stage: HeldStage, within_s: float, tell_waiting: Callable[[], None]) -> str:
    """How a stage's process failed to answer; "" when it did answer."""
    assert stage.process is not None
    clock = asyncio.get_running_loop().time
    silence = Silence(clock(), stage.process.vitality(), within_s)
    asking = asyncio.create_task(stage.client().status(SILENT_MAX_S + LOOK_S))
    try:
        while True:
            await asyncio.wait({asking}, timeout=LOOK_S)
            if asking.done():
                asking.result()
                return ""
            if how := silence.look(clock(), stage.process.vitality()):
                return how
            tell_waiting()
    except SwarmError as error:
        return f"does not answer: {error.message}"
    finally:
        asking.cancel()


async def _first_reached(addresses: Sequence[str], within_s: float) -> str:
    """The first that takes a connection, tried in order for 1 s each; "" when none does."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            for address in addresses:
                if await _is_reached(address):
                    return address
    return ""


async def _is_reached(address: str) -> bool:
    try:
        host, port = split_host_port(address)
        if not _HOST.fullmatch(host):
            return False
        async with asyncio.timeout(CONNECT_S):
            _, writer = await asyncio.open_connection(host, port)
    except (BadRequest, OSError, TimeoutError):
        return False
    writer.close()
    return True
