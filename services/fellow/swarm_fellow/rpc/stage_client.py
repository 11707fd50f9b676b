"""Calls to one stage process over its socket. Every call has a deadline or is cancelled by its caller."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable
from typing import TypeVar

import grpc
from silentswarm.core.v1 import generation_pb2, stage_pb2
from silentswarm.stage.v1 import stage_pb2 as rpc_pb2
from silentswarm.stage.v1.stage_pb2_grpc import StageStub
from swarm_core.errors import StageFailed, Unavailable
from swarm_rpc.channel import dial
from swarm_rpc.errors import error_of

T = TypeVar("T")
STATUS_TIMEOUT_S = 2.0
STOP_TIMEOUT_S = 2.0
GRACE_S = 1.0  # a stage is given its own deadline a little before ours, so that its words win over ours


class StageClient:
    """stage.v1.Stage of one process. Every method raises SwarmError."""

    def __init__(self, socket_path: str) -> None:
        self._channel = dial(f"unix:{socket_path}")
        self._stub = StageStub(self._channel)

    async def wait_until_it_answers(self) -> None:
        """Returns once the socket takes calls; the caller sets the deadline."""
        await self._channel.channel_ready()

    async def load(self, request: rpc_pb2.LoadRequest) -> AsyncGenerator[rpc_pb2.LoadEvent, None]:
        """Progress, then `loaded`; closing it cancels the load. The caller sets the deadline."""
        async for event in _events(self._stub.Load(request)):
            yield event
            if event.WhichOneof("event") == "loaded":
                return
        raise StageFailed("the stage ended its load without saying that it is loaded")

    async def wire(self, request: rpc_pb2.WireRequest) -> rpc_pb2.WireResponse:
        """Join a ring epoch, within request.timeout_ms."""
        return await _answer(self._stub.Wire(request, timeout=request.timeout_ms / 1000 + GRACE_S))

    async def probe(self, timeout_s: float) -> rpc_pb2.ProbeResponse:
        """Send a position round the ring."""
        request = rpc_pb2.ProbeRequest(timeout_ms=int(timeout_s * 1000))
        return await _answer(self._stub.Probe(request, timeout=timeout_s + GRACE_S))

    def generate(
        self, request_id: str, generation: generation_pb2.Generation
    ) -> AsyncGenerator[generation_pb2.GenerationEvent, None]:
        """One reply. Closing it ends the session on every stage; the leader owns the deadline and cancels."""
        return _events(self._stub.Generate(rpc_pb2.GenerateRequest(request_id=request_id, generation=generation)))

    async def status(self, timeout_s: float = STATUS_TIMEOUT_S) -> stage_pb2.StageStatus:
        """Live figures."""
        return await _answer(self._stub.GetStatus(rpc_pb2.GetStatusRequest(), timeout=timeout_s))

    def watch_faults(self) -> AsyncIterator[rpc_pb2.Fault]:
        """Faults until the process ends."""
        return _events(self._stub.WatchFaults(rpc_pb2.WatchFaultsRequest()))

    async def stop(self) -> None:
        """Ask the process to end, within 2 s."""
        await _answer(self._stub.Stop(rpc_pb2.StopRequest(), timeout=STOP_TIMEOUT_S))

    async def close(self) -> None:
        """Close the connection."""
        await self._channel.close()


async def _answer(call: Awaitable[T]) -> T:
    try:
        return await call
    except grpc.RpcError as error:
        raise error_of(error) from error
    except asyncio.CancelledError:
        raise _closed_or_cancelled() from None


async def _events(call: grpc.aio.UnaryStreamCall) -> AsyncGenerator:
    try:
        async for event in call:
            yield event
    except grpc.RpcError as error:
        raise error_of(error) from error
    except asyncio.CancelledError:
        raise _closed_or_cancelled() from None
    finally:
        call.cancel()


def _closed_or_cancelled() -> BaseException:
    """grpc says "cancelled" for both: our task is being cancelled, or the channel was closed because its process ended.

    Only the first may end the task; the second is the news that somebody waits for.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        return asyncio.CancelledError()
    return Unavailable("the connection to the stage process was closed")
