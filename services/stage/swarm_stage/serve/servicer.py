"""stage.v1.Stage: parse, call the host, answer."""

import asyncio
from collections.abc import AsyncIterator

import grpc
from silentswarm.core.v1 import generation_pb2, link_pb2, stage_pb2
from silentswarm.stage.v1 import stage_pb2 as rpc
from silentswarm.stage.v1 import stage_pb2_grpc
from swarm_core.errors import SwarmError
from swarm_rpc.reasons import failed_event
from swarm_rpc.tls import Trust, check_roots

from swarm_stage.ring.link import LinkKeys
from swarm_stage.ring.wiring import WireOrder
from swarm_stage.serve.runner import StageRunner

WIRE_TIMEOUT_S = 10.0
PROBE_TIMEOUT_S = 30.0
PROGRESS_MAX = 256


class StageServicer(stage_pb2_grpc.StageServicer):
    """Thin."""

    def __init__(self, runner: StageRunner) -> None:
        self._runner = runner

    async def Load(self, request: rpc.LoadRequest, context: grpc.aio.ServicerContext) -> AsyncIterator[rpc.LoadEvent]:
        loop = asyncio.get_running_loop()
        progress: asyncio.Queue[rpc.LoadProgress] = asyncio.Queue(PROGRESS_MAX)

        def note(step: str, done: int, total: int) -> None:
            loop.call_soon_threadsafe(_put_if_room, progress, rpc.LoadProgress(step=step, done=done, total=total))

        loading = asyncio.ensure_future(self._runner.load(request, note))
        while not loading.done() or not progress.empty():
            getting = asyncio.ensure_future(progress.get())
            await asyncio.wait({loading, getting}, return_when=asyncio.FIRST_COMPLETED)
            if getting.done():
                yield rpc.LoadEvent(progress=getting.result())
            getting.cancel()
        yield rpc.LoadEvent(loaded=loading.result())

    async def Wire(self, request: rpc.WireRequest, context: grpc.aio.ServicerContext) -> rpc.WireResponse:
        order = WireOrder(
            epoch=request.epoch,
            route=request.route,
            previous_route=request.previous_route,
            next_addresses=tuple(request.next_addresses),
            relay_address=request.relay_address,
            timeout_s=request.timeout_ms / 1e3 or WIRE_TIMEOUT_S,
            kv_tokens=request.kv_tokens if request.HasField("kv_tokens") else None,
            keys=_keys(request.keys) if request.HasField("keys") else None,
            relay_trust=_trust(request.relay_trust) if request.HasField("relay_trust") else None,
            keep_sessions=request.keep_sessions,
            fresh_stages=frozenset(request.fresh_stages),
        )
        return await self._runner.wire(order)

    async def Probe(self, request: rpc.ProbeRequest, context: grpc.aio.ServicerContext) -> rpc.ProbeResponse:
        return await self._runner.probe(request.timeout_ms / 1e3 or PROBE_TIMEOUT_S)

    async def Generate(
        self, request: rpc.GenerateRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[generation_pb2.GenerationEvent]:
        sequence = request.generation.resume.sequence
        events = self._runner.generate(request.request_id, request.generation)
        try:
            async for event in events:
                sequence = event.sequence or sequence
                yield event
        except SwarmError as error:
            # The caller reads one kind of ending: a Failed event, whatever went wrong and when.
            yield failed_event(error, sequence + 1)
        finally:
            await events.aclose()

    async def GetStatus(
        self, request: rpc.GetStatusRequest, context: grpc.aio.ServicerContext
    ) -> stage_pb2.StageStatus:
        return self._runner.status()

    async def WatchFaults(
        self, request: rpc.WatchFaultsRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[rpc.Fault]:
        async for fault in self._runner.faults():
            yield fault

    async def Stop(self, request: rpc.StopRequest, context: grpc.aio.ServicerContext) -> rpc.StopResponse:
        self._runner.stopping.set()
        return rpc.StopResponse()


def _keys(told: link_pb2.RingKeys) -> LinkKeys | None:
    """None when no proof is asked for."""
    if not told.next_secret or not told.previous_secret:
        return None
    return LinkKeys(
        next_secret=told.next_secret,
        previous_secret=told.previous_secret,
        next_name=told.next_name,
        previous_name=told.previous_name,
        sender_ticket=told.sender_ticket,
        receiver_ticket=told.receiver_ticket,
    )


def _trust(told: link_pb2.PeerTrust) -> Trust:
    """Raises BadRequest when it holds no roots."""
    check_roots(told.roots, "relay_trust", "relay_trust")
    return Trust(told.roots, told.name)


def _put_if_room(queue: asyncio.Queue[rpc.LoadProgress], progress: rpc.LoadProgress) -> None:
    if not queue.full():
        queue.put_nowait(progress)
