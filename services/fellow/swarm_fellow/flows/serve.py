"""Replies this fellow's stages make: requests down, events up, cancels passed on. Generates nothing itself.

A reply outlives the stream it was asked for on when it said so: its events are kept until the leader is back.
"""

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field

import grpc
import structlog
from silentswarm.core.v1.generation_pb2 import GenerationEvent
from silentswarm.fellow.v1 import inference_link_pb2 as serve_pb2
from silentswarm.fellow.v1.inference_link_pb2_grpc import InferenceLinkStub
from swarm_core.clock import Clock
from swarm_core.errors import (
    LinkBroken,
    ModelNotReady,
    Overloaded,
    Reason,
    ReplyNotFound,
    StageFailed,
    StaleEpoch,
    SwarmError,
)
from swarm_rpc.errors import error_of
from swarm_rpc.race import run_until_first
from swarm_rpc.reasons import failed_event

from swarm_fellow.domain.backoff import Draw, failures_after, redial_delay_s
from swarm_fellow.flows.reply_tail import ALONE, FOLLOWED, ReplyTail, TailRoom
from swarm_fellow.flows.serve_stream import ServeStream
from swarm_fellow.flows.stages import HeldStage, StageState, StageTable
from swarm_fellow.rpc.convert import describe_stage

log = structlog.get_logger()

DEAD_REASONS = {Reason.UNAVAILABLE, Reason.CANCELLED}  # what a call to a process that ends is told
EXIT_WAIT_S = 2.0  # a broken stream is usually a dead process; its exit says why
KEEP_MAX_S = 300.0  # whatever a leader asks for
ENDED_KEPT_S = 10.0  # the last events of a reply may be lost with a link that is found broken only later
ENDED_KEPT_MAX = 256
OLDER_ENDS_S = 2.0  # how long a new attempt at a reply waits for the older one to end


@dataclass(eq=False)
class _Reply:
    """One reply. stream: where its events go; None while it goes on alone. keep_s: how long it may.

    kept_until_s: on the loop's clock; None while it is followed. is_told: a hello named it since nobody follows it.
    """

    request: serve_pb2.ReplyRequest
    stage: HeldStage
    tail: ReplyTail
    keep_s: float
    stream: ServeStream | None
    task: asyncio.Task[None] | None = None
    is_ended: bool = False
    giving_up: asyncio.TimerHandle | None = None
    kept_until_s: float | None = None
    is_told: bool = False
    catching_up: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def request_id(self) -> str:
        """Its request."""
        return self.request.request_id

    @property
    def is_alone(self) -> bool:
        """Nobody follows it now."""
        return self.stream is None and not self.catching_up

    def told(self) -> serve_pb2.KeptReply:
        """How the next hello names it."""
        request = self.request
        return serve_pb2.KeptReply(
            request_id=request.request_id,
            placement_id=request.placement_id,
            epoch=request.epoch,
            owner=request.owner,
            first_sequence=self.tail.first_sequence,
            last_sequence=self.tail.last_sequence,
            model_id=request.model_id,
        )


class ReplyServer:
    """Keeps one Serve stream open and runs replies.

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
        self._replies: dict[str, _Reply] = {}
        self._room = TailRoom()
        self.reopened = 0  # streams opened again over a connection that stood, since the start

    async def run(self, channel: grpc.aio.Channel, fellow_id: str, metadata: tuple[tuple[str, str], ...]) -> None:
        """Serve until cancelled; a broken stream is opened again with backoff."""
        failures = 0
        while True:
            began_s = self._clock.monotonic_s()
            call = InferenceLinkStub(channel).Serve(metadata=metadata)
            hello = serve_pb2.InferenceHello(
                fellow_id=fellow_id, process_nonce=self._process_nonce, kept=list(self._kept())
            )
            try:
                await call.write(serve_pb2.ServeRequest(hello=hello))
                await self._serve(ServeStream(call))
            except (grpc.RpcError, asyncio.InvalidStateError, LinkBroken) as error:
                why = error_of(error).message if isinstance(error, grpc.RpcError) else str(error)
                log.info("the inference link broke", why=why)
            finally:
                call.cancel()
            failures = failures_after(failures, self._clock.monotonic_s() - began_s)
            await asyncio.sleep(redial_delay_s(failures, self._draw()))
            self.reopened += 1

    async def close(self) -> None:
        """End every reply."""
        replies = list(self._replies.values())
        for reply in replies:
            self._forget(reply)
        await asyncio.gather(*(reply.task for reply in replies if reply.task), return_exceptions=True)

    def _kept(self) -> Iterator[serve_pb2.KeptReply]:
        """What goes on since the last stream broke. Its time begins anew with the first hello that names it.

        With that one only: a link that breaks again and again keeps what nobody resumes for twice its time at most.
        """
        for reply in self._replies.values():
            if not reply.is_told:
                reply.is_told, reply.kept_until_s = True, None
            self._keep(reply)
            yield reply.told()

    async def _serve(self, stream: ServeStream) -> None:
        """One stream, until it ends. Replies that are not kept end with it. Raises grpc.RpcError, LinkBroken."""
        try:
            await run_until_first(self._read(stream), stream.write_all())
        finally:
            stream.end()
            ended = []
            for reply in list(self._replies.values()):
                reply.stream = None
                for task in reply.catching_up:
                    task.cancel()
                if reply.keep_s > 0:
                    self._keep(reply)
                else:
                    ended.append(reply.task)
                    self._forget(reply)
            await asyncio.gather(*(task for task in ended if task), return_exceptions=True)

    async def _read(self, stream: ServeStream) -> None:
        while (message := await stream.read()) is not None:
            body = message.WhichOneof("body")
            if body == "request":
                self._begin(message.request, stream)
            elif body == "cancel":
                if (reply := self._replies.get(message.cancel.request_id)) is not None:
                    self._forget(reply)
            elif body == "resume":
                self._resume(message.resume, stream)

    def _begin(self, request: serve_pb2.ReplyRequest, stream: ServeStream) -> None:
        """Start a reply. Waits for nothing: a full queue of events must not keep cancels from being read.

        An older attempt at it that went on alone, or ended, gives way. Raises LinkBroken as ServeStream.refuse does.
        """
        older = self._replies.get(request.request_id)
        if older is not None:
            if older.stream is stream and not older.is_ended:
                log.warning("a request came twice and is answered once", request_id=request.request_id)
                return
            self._forget(older)
        try:
            stage = self._stage_for(request)
        except SwarmError as error:
            stream.refuse(request.request_id, error, request.generation.resume.sequence + 1)
            return
        keep_s = min(request.keep_ms / 1000, KEEP_MAX_S)
        tail = ReplyTail(self._room)
        tail.last_sequence = request.generation.resume.sequence
        reply = self._replies[request.request_id] = _Reply(request, stage, tail, keep_s, stream)
        stage.replies_open += 1
        reply.task = asyncio.create_task(self._run(reply, older.task if older is not None else None))
        reply.task.add_done_callback(lambda _: self._close(reply))

    def _resume(self, resume: serve_pb2.ResumeReply, stream: ServeStream) -> None:
        """Events of a kept reply are wanted from here on."""
        reply = self._replies.get(resume.request_id)
        if reply is None or not reply.is_alone:
            lost = ReplyNotFound(f"reply {resume.request_id} is not kept here")
            stream.refuse(resume.request_id, lost, resume.after_sequence + 1)
            return
        self._give_up_in(reply, None)
        task = asyncio.create_task(self._catch_up(reply, stream, resume.after_sequence))
        reply.catching_up.add(task)
        task.add_done_callback(reply.catching_up.discard)

    async def _catch_up(self, reply: _Reply, stream: ServeStream, sequence: int) -> None:
        """Send what is kept, and then what comes."""
        while events := reply.tail.after(sequence):
            for event in events:
                await stream.send(reply.request_id, event)
                sequence = event.sequence
        if events is None:
            lost = ReplyNotFound(f"events {sequence + 1}..{reply.tail.first_sequence - 1} of the reply are gone")
            self._forget(reply)
            await stream.send(reply.request_id, failed_event(lost, sequence + 1))
        elif not stream.is_over:
            reply.stream = stream  # nothing came since `after` was asked: no event is missed or sent twice
            reply.is_told, reply.kept_until_s = False, None
            if reply.is_ended:
                self._give_up_in(reply, ENDED_KEPT_S)

    def _forget(self, reply: _Reply) -> None:
        """Nobody wants it any more; harmless when it is over."""
        if self._replies.get(reply.request_id) is reply:
            del self._replies[reply.request_id]
        self._give_up_in(reply, None)
        reply.is_ended = True
        reply.tail.clear()
        if reply.task is not None:
            reply.task.cancel()

    def _keep(self, reply: _Reply) -> None:
        """Nobody follows it: it goes on for what is left of its time."""
        now_s = asyncio.get_running_loop().time()
        if reply.kept_until_s is None:
            reply.kept_until_s = now_s + reply.keep_s
        self._give_up_in(reply, max(0.0, reply.kept_until_s - now_s))

    def _give_up_in(self, reply: _Reply, after_s: float | None) -> None:
        """Forget it then, and not before; None: nothing is planned."""
        if reply.giving_up is not None:
            reply.giving_up.cancel()
            reply.giving_up = None
        if after_s is not None:
            reply.giving_up = asyncio.get_running_loop().call_later(after_s, self._forget, reply)

    def _close(self, reply: _Reply) -> None:
        """The stage has no more of this reply; also runs when the task was cancelled before its first step."""
        reply.stage.replies_open -= 1
        if self._replies.get(reply.request_id) is not reply:
            return
        reply.is_ended = True
        if reply.keep_s <= 0:
            self._forget(reply)
        elif reply.stream is not None:
            self._give_up_in(reply, ENDED_KEPT_S)
            ended = [one for one in self._replies.values() if one.is_ended and one.stream is not None]
            if len(ended) > ENDED_KEPT_MAX:
                self._forget(ended[0])

    def _stage_for(self, request: serve_pb2.ReplyRequest) -> HeldStage:
        """The stage that answers; for a place there a reply that goes on alone gives way.

        Raises StaleEpoch or Overloaded.
        """
        stage = self._table.find(request.placement_id)
        if stage is None or stage.spec.epoch != request.epoch:
            held = f"epoch {stage.spec.epoch}" if stage else "nothing"
            raise StaleEpoch(
                f"the request is for placement {request.placement_id}, epoch {request.epoch}; of it this fellow holds "
                f"{held}",
                placement=request.placement_id,
                epoch=request.epoch,
            )
        running = [reply for reply in self._replies.values() if reply.stage is stage and not reply.is_ended]
        if len(running) >= self._in_flight_max:
            alone = next((reply for reply in running if reply.is_alone), None)
            if alone is None:
                words = f"{len(running)} replies run or wait on this stage already"
                raise Overloaded(words, in_flight_max=self._in_flight_max)
            self._forget(alone)  # its caller may never come; this one is here
        return stage

    async def _run(self, reply: _Reply, older: asyncio.Task[None] | None) -> None:
        """older: an attempt that gave way; its end must not be taken for this one's."""
        try:
            if older is not None:
                await asyncio.wait({older}, timeout=OLDER_ENDS_S)
            events = reply.stage.client().generate(reply.request_id, reply.request.generation)
            async with contextlib.aclosing(events):
                async for event in events:
                    # The leader may send the next request as soon as it has the end, so the place is free before.
                    reply.is_ended = event.WhichOneof("event") in ("done", "failed")
                    await self._pass_on(reply, event)
                    if reply.is_ended:
                        return
            raise StageFailed(f"{describe_stage(reply.stage.spec)} ended the reply without an end")
        except Exception as error:
            why = await _explain(reply.stage, error)
            reply.is_ended = True
            await self._pass_on(reply, failed_event(why, reply.tail.last_sequence + 1))

    async def _pass_on(self, reply: _Reply, event: GenerationEvent) -> None:
        if event.sequence:
            reply.tail.push(event, FOLLOWED if reply.stream is not None else ALONE)
        if reply.stream is not None:
            await reply.stream.send(reply.request_id, event)


async def _explain(stage: HeldStage, error: Exception) -> SwarmError:
    """Why a reply broke off: the stage's own words, what became of its process, or a bug of ours."""
    if not isinstance(error, SwarmError):
        log.error("a reply failed by a bug of ours", stage=describe_stage(stage.spec), exc_info=error)
        return SwarmError(f"internal error on the fellow: {type(error).__name__}; see its log")
    if stage.process is None or (error.why not in DEAD_REASONS and not stage.process.has_ended):
        return error
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(EXIT_WAIT_S):
            how = await stage.process.wait()
        if stage.state is StageState.ENDING and not stage.has_crashed:
            return ModelNotReady(f"{describe_stage(stage.spec)} {stage.end_reason} during the reply")
        return StageFailed(f"the process of {describe_stage(stage.spec)} {how}", stage=stage.spec.stage_index)
    return StageFailed(f"{describe_stage(stage.spec)} broke off the reply: {error.message}")
