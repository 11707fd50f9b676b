"""The fellow's end of one Serve stream: what goes up waits here, bounded, and for nobody once the stream is over."""

import asyncio
from collections import deque

import grpc
from silentswarm.core.v1.generation_pb2 import GenerationEvent
from silentswarm.fellow.v1 import inference_link_pb2 as serve_pb2
from swarm_core.errors import LinkBroken, SwarmError
from swarm_rpc.reasons import failed_event

EVENTS_WAITING_MAX = 1024  # then replies wait for the link, and the stage's own stream for them
REFUSALS_WAITING_MAX = 256  # then a leader asks without end and reads nothing


class ServeStream:
    """One stream. Events are sent in the order in which they are given."""

    def __init__(self, call: grpc.aio.StreamStreamCall) -> None:
        self._call = call
        self._waiting: deque[serve_pb2.ServeRequest] = deque()
        self._refusals: set[asyncio.Task[None]] = set()
        self._filled = asyncio.Event()
        self._drained = asyncio.Event()
        self.is_over = False

    async def read(self) -> serve_pb2.ServeResponse | None:
        """The next message; None at the end. Raises grpc.RpcError."""
        message = await self._call.read()
        return None if message is grpc.aio.EOF else message

    async def write_all(self) -> None:
        """Write what is sent, until the stream breaks. Raises grpc.RpcError."""
        while True:
            while self._waiting:
                message = self._waiting.popleft()
                self._drained.set()
                await self._call.write(message)
            self._filled.clear()
            await self._filled.wait()

    async def send(self, request_id: str, event: GenerationEvent) -> None:
        """Queue an event; waits for room. What is sent to a stream that is over goes nowhere."""
        while len(self._waiting) >= EVENTS_WAITING_MAX and not self.is_over:
            self._drained.clear()
            await self._drained.wait()
        if not self.is_over:
            reply = serve_pb2.ReplyEvent(request_id=request_id, event=event)
            self._waiting.append(serve_pb2.ServeRequest(event=reply))
            self._filled.set()

    def refuse(self, request_id: str, why: SwarmError, sequence: int = 1) -> None:
        """Send a failure, without waiting. Raises LinkBroken when too many wait already."""
        if len(self._refusals) >= REFUSALS_WAITING_MAX:
            raise LinkBroken(f"{REFUSALS_WAITING_MAX} refusals wait for a leader that reads nothing")
        refusal = asyncio.create_task(self.send(request_id, failed_event(why, sequence)))
        self._refusals.add(refusal)
        refusal.add_done_callback(self._refusals.discard)

    def end(self) -> None:
        """Nothing goes up any more; whoever waits to send goes on."""
        self.is_over = True
        self._waiting.clear()
        self._drained.set()
