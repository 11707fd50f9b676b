"""Replies of one connection: requests down, events up, cancels passed on to the stage. Generates nothing itself."""

import asyncio
import contextlib
from dataclasses import dataclass

import grpc
import structlog
from silentswarm.fellow.v1 import inference_link_pb2 as serve_pb2
from silentswarm.fellow.v1.inference_link_pb2_grpc import InferenceLinkStub
from swarm_core.clock import Clock
from swarm_core.errors import LinkBroken, ModelNotReady, Overloaded, Reason, StageFailed, StaleEpoch, SwarmError
from swarm_rpc.errors import error_of
from swarm_rpc.race import run_until_first
from swarm_rpc.reasons import failed_event

from swarm_fellow.domain.backoff import Draw, failures_after, redial_delay_s
from swarm_fellow.flows.stages import HeldStage, StageState, StageTable
from swarm_fellow.rpc.convert import describe_stage

log = structlog.get_logger()

EVENTS_WAITING_MAX = 1024  # then replies wait for the link, and the stage's own stream for them
REFUSALS_WAITING_MAX = 256  # then a leader asks without end and reads nothing
DEAD_REASONS = {Reason.UNAVAILABLE, Reason.CANCELLED}  # what a call to a process that ends is told
EXIT_WAIT_S = 2.0  # a broken stream is usually a dead process; its exit says why


@dataclass(eq=False)
class _Reply:
    """One reply in progress."""

    request_id: str
    stage: HeldStage
    task: asyncio.Task | None = None
    last_sequence: int = 0
    is_ended: bool = False


class ReplyServer:
    """Keeps one Serve stream open and runs its replies.

    in_flight_max: replies a stage holds at once; one more is refused with OVERLOADED. process_nonce: one word for this
    run of the process, as it registers with.
    """

    def __init__(
        self, table: StageTable, in_flight_max: int, clock: Clock, draw: Draw, process_nonce: str = ""
    ) -> None:
        self._table = table
        self._in_flight_max = in_flight_max
        self._process_nonce = process_nonce
        self._clock = clock
        self._draw = draw
        self.reopened = 0  # streams opened again over a connection that stood, since the start

    async def run(self, channel: grpc.aio.Channel, fellow_id: str, metadata: tuple[tuple[str, str], ...]) -> None:
        """Serve until cancelled; a broken stream is opened again with backoff."""
        hello = serve_pb2.InferenceHello(fellow_id=fellow_id, process_nonce=self._process_nonce)
        failures = 0
        while True:
            began_s = self._clock.monotonic_s()
            call = InferenceLinkStub(channel).Serve(metadata=metadata)
            try:
                await call.write(serve_pb2.ServeRequest(hello=hello))
                await _Stream(self._table, self._in_flight_max, call).run()
            except (grpc.RpcError, asyncio.InvalidStateError, LinkBroken) as error:
                why = error_of(error).message if isinstance(error, grpc.RpcError) else str(error)
                log.info("the inference link broke", why=why)
            finally:
                call.cancel()
            failures = failures_after(failures, self._clock.monotonic_s() - began_s)
            await asyncio.sleep(redial_delay_s(failures, self._draw()))
            self.reopened += 1


class _Stream:
    """One Serve stream; when it ends, so do its replies."""

    def __init__(self, table: StageTable, in_flight_max: int, call: grpc.aio.StreamStreamCall) -> None:
        self._table = table
        self._in_flight_max = in_flight_max
        self._call = call
        self._replies: dict[str, _Reply] = {}
        self._refusals: set[asyncio.Task] = set()
        self._events: asyncio.Queue[serve_pb2.ServeRequest] = asyncio.Queue(EVENTS_WAITING_MAX)

    async def run(self) -> None:
        """Until the stream ends. Raises grpc.RpcError."""
        try:
            await run_until_first(self._read(), self._write())
        finally:
            tasks = [reply.task for reply in self._replies.values() if reply.task]
            tasks += self._refusals
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(self) -> None:
        while (message := await self._call.read()) is not grpc.aio.EOF:
            body = message.WhichOneof("body")
            if body == "request":
                self._begin(message.request)
            elif body == "cancel":
                self._cancel(message.cancel.request_id)

    async def _write(self) -> None:
        while True:
            await self._call.write(await self._events.get())

    def _begin(self, request: serve_pb2.ReplyRequest) -> None:
        """Start a reply. Waits for nothing: a full queue of events must not keep cancels from being read.

        Raises LinkBroken when too many refusals wait already.
        """
        if request.request_id in self._replies:
            log.warning("a request came twice and is answered once", request_id=request.request_id)
            return
        try:
            reply = _Reply(request.request_id, self._stage_for(request))
        except SwarmError as error:
            if len(self._refusals) >= REFUSALS_WAITING_MAX:
                raise LinkBroken(f"{REFUSALS_WAITING_MAX} refusals wait for a leader that reads nothing") from None
            refusal = asyncio.create_task(self._send(request.request_id, failed_event(error, 1)))
            self._refusals.add(refusal)
            refusal.add_done_callback(self._refusals.discard)
            return
        self._replies[request.request_id] = reply
        reply.stage.replies_open += 1
        reply.task = asyncio.create_task(self._run(reply, request))
        reply.task.add_done_callback(lambda _: self._close(reply))

    def _cancel(self, request_id: str) -> None:
        reply = self._replies.pop(request_id, None)
        if reply and reply.task:
            reply.is_ended = True
            reply.task.cancel()

    def _close(self, reply: _Reply) -> None:
        """The stage has no more of this reply; also runs when the task was cancelled before its first step."""
        reply.stage.replies_open -= 1
        if self._replies.get(reply.request_id) is reply:
            del self._replies[reply.request_id]

    def _stage_for(self, request: serve_pb2.ReplyRequest) -> HeldStage:
        """The stage that answers. Raises StaleEpoch or Overloaded."""
        stage = self._table.find(request.placement_id)
        if stage is None or stage.spec.epoch != request.epoch:
            held = f"epoch {stage.spec.epoch}" if stage else "nothing"
            raise StaleEpoch(
                f"the request is for placement {request.placement_id}, epoch {request.epoch}; of it this fellow holds "
                f"{held}",
                placement=request.placement_id,
                epoch=request.epoch,
            )
        running = sum(reply.stage is stage and not reply.is_ended for reply in self._replies.values())
        if running >= self._in_flight_max:
            raise Overloaded(f"{running} replies run or wait on this stage already", in_flight_max=self._in_flight_max)
        return stage

    async def _run(self, reply: _Reply, request: serve_pb2.ReplyRequest) -> None:
        try:
            events = reply.stage.client().generate(request.request_id, request.generation)
            async with contextlib.aclosing(events):
                async for event in events:
                    reply.last_sequence = event.sequence
                    # The leader may send the next request as soon as it has the end, so the place is free before.
                    reply.is_ended = event.WhichOneof("event") in ("done", "failed")
                    await self._send(reply.request_id, event)
                    if reply.is_ended:
                        return
            raise StageFailed(f"{describe_stage(reply.stage.spec)} ended the reply without an end")
        except Exception as error:
            why = await _explain(reply.stage, error)
            reply.is_ended = True
            await self._send(reply.request_id, failed_event(why, reply.last_sequence + 1))

    async def _send(self, request_id: str, event) -> None:
        await self._events.put(serve_pb2.ServeRequest(event=serve_pb2.ReplyEvent(request_id=request_id, event=event)))


async def _explain(stage: HeldStage, error: Exception) -> SwarmError:
    """Why a reply broke off: the stage's own words, what became of its process, or a bug of ours."""
    if not isinstance(error, SwarmError):
        log.error("a reply failed by a bug of ours", stage=describe_stage(stage.spec), exc_info=error)
        return SwarmError(f"internal error on the fellow: {type(error).__name__}; see its log")
    if stage.process is None or (error.why not in DEAD_REASONS and not stage.process.has_ended):
        return error
    with contextlib.suppress(TimeoutError):
        how = await asyncio.wait_for(stage.process.wait(), EXIT_WAIT_S)
        if stage.state is StageState.ENDING and not stage.has_crashed:
            return ModelNotReady(f"{describe_stage(stage.spec)} {stage.end_reason} during the reply")
        return StageFailed(f"the process of {describe_stage(stage.spec)} {how}", stage=stage.spec.stage_index)
    return StageFailed(f"{describe_stage(stage.spec)} broke off the reply: {error.message}")
