"""One reply, from request to last event: find a ready ring, wait for a place, pass events on, go on after a break."""

import asyncio
import secrets
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass

from silentswarm.core.v1 import generation_pb2
from silentswarm.fellow.v1 import inference_link_pb2 as link_pb2
from swarm_core.errors import Conflict, ReplyNotFound, SwarmError

from swarm_leader.config import LeaderConfig
from swarm_leader.domain.ports import Catalog
from swarm_leader.flows.board import Board, Placement
from swarm_leader.flows.caller import Caller, Callers
from swarm_leader.flows.faults import Faults
from swarm_leader.flows.gate import Gates, Standing, Turn
from swarm_leader.flows.hold import Break, Hold
from swarm_leader.flows.measure import Measuring, ReplyMeter
from swarm_leader.flows.ready import ReadyRings
from swarm_leader.flows.registry import Registry
from swarm_leader.flows.replies import Replies, Reply
from swarm_leader.flows.reply_course import ReplyCourse
from swarm_leader.flows.reply_events import ReplyEvents, metered, too_late
from swarm_leader.flows.ring_checks import RingChecks

LINK_WAIT_S = 5.0  # a fellow opens its inference link right after it joined; a redial takes a moment
Events = AsyncGenerator[generation_pb2.GenerationEvent, None]


@dataclass(frozen=True)
class _Asked:
    """One request on its way. at: the model in whose gate it has its place. deadline_s: on the loop's clock."""

    caller: Caller
    model_id: str
    at: str
    generation: generation_pb2.Generation
    course: ReplyCourse
    deadline_s: float


class Generating:
    """Generates replies."""

    def __init__(
        self,
        catalog: Catalog,
        board: Board,
        registry: Registry,
        rings: ReadyRings,
        faults: Faults,
        replies: Replies,
        gates: Gates,
        measuring: Measuring,
        config: LeaderConfig,
        new_seed: Callable[[], int] = lambda: secrets.randbits(63),
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        self._board = board
        self._registry = registry
        self._rings = rings
        self._replies = replies
        self._gates = gates
        self._measuring = measuring
        self._config = config
        self._new_seed = new_seed
        self._new_id = new_id
        self._callers = Callers()
        self._hold = Hold(board, replies, config.hold_s)
        self._reading = ReplyEvents(registry, faults, replies, config)
        self._checks = RingChecks(catalog, board, registry)

    def caller(self, request_id: str, owner: str = "") -> Caller:
        """A caller, with a name for its request when it gave none. owner: id of its token, "" for none."""
        return Caller(request_id or self._new_id(), owner)

    async def generate(self, caller: Caller, model_id: str, generation: generation_pb2.Generation) -> Events:
        """The events of one reply, Done last. `generation` is checked by rpc and gets its seed and its adapter here.

        A reply whose ring breaks goes on as soon as a ring can, for as long as config.hold_s; until then its caller
        hears Queued events. Raises ModelNotFound, ServableCorrupt, ModelNotReady, Overloaded, DeadlinePassed,
        FellowLost, StageFailed, Conflict, CapabilityMissing, Cancelled, and RemoteError with what the fellow failed it
        for. Whatever ends this, the session ends on every stage.
        """
        kept = self._replies.kept(caller.request_id)
        if kept is not None and kept.reply.owner != caller.owner:
            raise Conflict(f"request_id {caller.request_id} is another caller's", field="request_id")
        async with self._callers.running(caller, takes_over=generation.HasField("resume")):
            meter = self._measuring.reply()
            if (serving := self._board.serving_of(model_id)) is not None:
                placement, adapter = serving
                meter.take_model(placement.model_id, adapter)
            async for event in metered(self._generate(caller, model_id, generation, meter), meter):
                yield event

    async def resume(self, caller: Caller, after_sequence: int, wait_s: float) -> Events:
        """More events of a reply that a fellow keeps, Done last. wait_s: for that fellow to say so.

        Raises ReplyNotFound when none does, or not from there, when it is another caller's, and when its ring breaks:
        the caller alone knows with what the reply goes on. DeadlinePassed and others as generate.
        """
        lost = ReplyNotFound(f"no fellow keeps reply {caller.request_id} from event {after_sequence + 1} on")
        living = [one.fellow_id for one in self._registry.all() if self._registry.leases.is_running(one.fellow_id)]
        kept = await self._replies.wait_kept(caller.request_id, wait_s, living)
        if kept is None or kept.reply.owner != caller.owner or kept.reply.first_sequence > after_sequence + 1:
            raise lost
        placement = self._board.by_id(kept.reply.placement_id)
        if placement is None:
            raise lost
        deadline_s = asyncio.get_running_loop().time() + self._config.request_timeout_s
        model_id = kept.reply.model_id or placement.model_id
        gate, places = self._gates.of(placement.model_id), placement.record.in_flight_max
        course = ReplyCourse()
        async with self._callers.running(caller):
            meter = self._measuring.reply()
            meter.take_model(placement.model_id, "" if model_id == placement.model_id else model_id)
            with gate.turn(caller.request_id, caller.owner, 1.0, places) as turn:
                meter.take_place()  # it has one on its stage, whatever the gate says
                try:
                    reply = self._replies.take_up(kept, after_sequence)
                    events = self._reading.follow(caller, reply, turn, meter, placement, course, deadline_s)
                    async for event in metered(events, meter):
                        yield event
                except SwarmError as error:
                    raise (lost if course.may_go_on(error, can_resume=True) else error) from None

    async def _generate(
        self, caller: Caller, model_id: str, generation: generation_pb2.Generation, meter: ReplyMeter
    ) -> Events:
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self._config.request_timeout_s
        course = ReplyCourse(generation.resume if generation.HasField("resume") else None)
        async for event in self._until_ready(caller, model_id, min(deadline_s, loop.time() + self._hold.hold_s)):
            yield event
        placement, generation.adapter = self._rings.require(model_id)
        self._checks.tokens(model_id, generation)
        self._checks.drawing(generation, placement)
        if not generation.sampling.HasField("seed"):
            generation.sampling.seed = self._new_seed()
        generation.caller_weight = self._config.weights.get(generation.caller, 1.0)
        gate = self._gates.of(placement.model_id)  # adapters wait with their base: they share its places
        places = placement.record.in_flight_max
        asked = _Asked(caller, model_id, placement.model_id, generation, course, deadline_s)
        with gate.turn(caller.request_id, generation.caller, generation.caller_weight, places) as turn:
            caller.follow(turn)
            async for event in self._waits(turn, placement.model_id, deadline_s):
                yield event
            meter.take_place()
            async for event in self._attempts(asked, turn, meter):
                yield event

    async def _until_ready(self, caller: Caller, model_id: str, until_s: float) -> Events:
        """Until an idle model has loaded again, or one that heals is well; how the request stands meanwhile."""
        async with aclosing(self._rings.wake(model_id)) as standings:
            async for standing in standings:
                yield _queued_event(standing)
        serving = self._board.serving_of(model_id)
        if serving is None or not self._hold.is_healing(model_id):
            return
        with self._gates.of(serving[0].model_id).load_awaited():
            async with aclosing(self._hold.wait_healed(caller, model_id, until_s)) as standings:
                async for standing in standings:
                    yield _queued_event(standing)

    async def _waits(
        self, turn: Turn, model_id: str, deadline_s: float
    ) -> AsyncIterator[generation_pb2.GenerationEvent]:
        """How the request stands, until it has a place. Raises what turned it away, and DeadlinePassed."""
        while True:
            try:
                async with asyncio.timeout_at(deadline_s):
                    standing = await turn.next()
            except TimeoutError:
                running = self._gates.of(model_id).running
                raise too_late(self._config, f"a place among the {running} replies of {model_id}") from None
            if standing is None:
                return
            yield _queued_event(standing)

    async def _attempts(self, asked: _Asked, turn: Turn, meter: ReplyMeter) -> Events:
        """The reply on one ring after the other, until one brings its end, or what broke it cannot be mended."""
        loop, course = asyncio.get_running_loop(), asked.course
        began_s, until_s, reached = loop.time(), 0.0, -1
        while True:
            attempt = self._attempt(asked, turn, meter, began_s)
            try:
                async with aclosing(attempt):
                    async for event in attempt:
                        yield event
                return
            except SwarmError as error:
                broke = error
            if self._replies.is_stopping or not course.may_go_on(broke, self._checks.can_resume(asked.model_id)):
                raise broke
            if self._hold.hold_s <= 0:
                raise broke
            if course.sequence > reached:  # nothing came since: it is the same interruption still
                reached, until_s = course.sequence, loop.time() + self._hold.hold_s
            course.note_break()
            turn.hold(True)
            placement_id, epoch = course.ring
            waiting = self._hold.wait_ring(
                asked.caller, asked.model_id, Break(broke, placement_id, epoch), min(until_s, asked.deadline_s)
            )
            async with aclosing(waiting):
                async for standing in waiting:
                    yield _queued_event(standing)
            turn.hold(False)

    async def _attempt(self, asked: _Asked, turn: Turn, meter: ReplyMeter, began_s: float) -> Events:
        """The reply on the ring that answers now, from where its caller has it. began_s: of the first attempt."""
        reply, placement = await self._open(asked)
        before_ms = (asyncio.get_running_loop().time() - began_s) * 1e3
        events = self._reading.follow(
            asked.caller, reply, turn, meter, placement, asked.course, asked.deadline_s, before_ms
        )
        async with aclosing(events):
            async for event in events:
                yield event

    async def _open(self, asked: _Asked) -> tuple[Reply, Placement]:
        """Hand the request to the fellow of stage 0, and say of which ring: it may have changed while this waited."""
        caller, model_id, generation, course = asked.caller, asked.model_id, asked.generation, asked.course
        if (serving := self._board.serving_of(model_id)) is not None:
            course.ring = (serving[0].record.placement_id, serving[0].record.epoch)
        placement, _ = self._rings.require(model_id, asked.at)
        first = placement.record.stages[0].fellow_id
        link = await self._replies.link_of(first, self._registry.name_of(first), LINK_WAIT_S)
        placement, generation.adapter = self._rings.require(model_id, asked.at)
        record = placement.record
        course.ring = (record.placement_id, record.epoch)
        self._checks.drawing(generation, placement)
        if course.has_begun:
            self._checks.resume(placement)
        generation.ClearField("resume")
        if (resume := course.resume()) is not None:
            generation.resume.CopyFrom(resume)
        request = link_pb2.ReplyRequest(
            request_id=caller.request_id,
            placement_id=record.placement_id,
            epoch=record.epoch,
            generation=generation,
            owner=caller.owner,
            keep_ms=int(self._replies.keep_s * 1000),
            model_id=model_id,
        )
        return self._replies.open(link, request, course.sequence), placement


def _queued_event(standing: Standing) -> generation_pb2.GenerationEvent:
    queued = generation_pb2.GenerationEvent.Queued(position=standing.position, reason=standing.reason)
    return generation_pb2.GenerationEvent(queued=queued)
