"""One reply, from request to last event: find a ready ring, wait for a place, pass events on, bound the time."""

import asyncio
import secrets
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Protocol

from silentswarm.core.v1 import generation_pb2
from silentswarm.fellow.v1 import inference_link_pb2 as link_pb2
from swarm_core.errors import BadRequest, Conflict, DeadlinePassed, RemoteError, SwarmError

from swarm_leader.config import LeaderConfig
from swarm_leader.domain.ports import Catalog
from swarm_leader.flows.board import Board, Placement
from swarm_leader.flows.drawing import check_drawing
from swarm_leader.flows.faults import Faults
from swarm_leader.flows.gate import Gates, Standing, Turn
from swarm_leader.flows.measure import Measuring, ReplyMeter
from swarm_leader.flows.ready import ReadyRings
from swarm_leader.flows.registry import Fellow, Registry
from swarm_leader.flows.replies import Replies, Reply
from swarm_leader.flows.signals import read_reason
from swarm_leader.flows.words import say_way

LINK_WAIT_S = 5.0  # a fellow opens its inference link right after it joined; a redial takes a moment


class Abandonable(Protocol):
    """What a request stands in: its turn at the gate, then its reply."""

    def abandon(self) -> None:
        """Nobody wants it any more."""


class Caller:
    """Whoever waits for one reply. `leave` ends the request at once, wherever it stands; safe to call at any time."""

    def __init__(self, request_id: str) -> None:
        self.request_id = request_id
        self.is_gone = False
        self._stands_in: Abandonable | None = None

    def follow(self, stands_in: Abandonable) -> None:
        """It waits at the gate, or its reply began."""
        self._stands_in = stands_in
        if self.is_gone:
            stands_in.abandon()

    def leave(self) -> None:
        """The caller went away."""
        self.is_gone = True
        if self._stands_in is not None:
            self._stands_in.abandon()


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
        self._catalog = catalog
        self._board = board
        self._registry = registry
        self._rings = rings
        self._faults = faults
        self._replies = replies
        self._gates = gates
        self._measuring = measuring
        self._config = config
        self._new_seed = new_seed
        self._new_id = new_id
        self._active: set[str] = set()

    def caller(self, request_id: str) -> Caller:
        """A caller, with a name for its request when it gave none."""
        return Caller(request_id or self._new_id())

    async def generate(
        self, caller: Caller, model_id: str, generation: generation_pb2.Generation
    ) -> AsyncGenerator[generation_pb2.GenerationEvent, None]:
        """The events of one reply, Done last. `generation` is checked by rpc and gets its seed and its adapter here.

        Raises ModelNotFound, ServableCorrupt, ModelNotReady, Overloaded, DeadlinePassed, FellowLost, StageFailed,
        Conflict, CapabilityMissing, Cancelled, and RemoteError with what the fellow failed it for. Whatever ends
        this, the session ends on every stage.
        """
        if caller.request_id in self._active:
            raise Conflict(f"request_id {caller.request_id} is in use by a reply that still runs", field="request_id")
        self._active.add(caller.request_id)
        meter = self._measuring.reply()
        if (serving := self._board.serving_of(model_id)) is not None:
            placement, adapter = serving
            meter.take_model(placement.model_id, adapter)
        try:
            async for event in self._generate(caller, model_id, generation, meter):
                yield event
        except SwarmError as error:
            meter.take_failure(error)
            raise
        except Exception:
            meter.take_failure(SwarmError("internal error"))
            raise
        finally:
            meter.take_cancel()  # what has no end until here has lost its caller
            self._active.discard(caller.request_id)

    async def _generate(
        self, caller: Caller, model_id: str, generation: generation_pb2.Generation, meter: ReplyMeter
    ) -> AsyncIterator[generation_pb2.GenerationEvent]:
        deadline_s = asyncio.get_running_loop().time() + self._config.request_timeout_s
        async with aclosing(self._rings.wake(model_id)) as standings:
            async for standing in standings:
                yield _queued_event(standing)
        placement, generation.adapter = self._rings.require(model_id)
        self._check_tokens(model_id, generation)
        check_drawing(generation, self._ring(placement))
        if not generation.sampling.HasField("seed"):
            generation.sampling.seed = self._new_seed()
        generation.caller_weight = self._config.weights.get(generation.caller, 1.0)
        gate = self._gates.of(placement.model_id)  # adapters wait with their base: they share its places
        places = placement.record.in_flight_max
        with gate.turn(caller.request_id, generation.caller, generation.caller_weight, places) as turn:
            caller.follow(turn)
            async for event in self._waits(turn, placement.model_id, deadline_s):
                yield event
            meter.take_place()
            reply, placement = await self._open(caller, model_id, placement.model_id, generation)
            try:
                async for event in self._events(reply, turn, meter, placement, deadline_s):
                    yield event
            finally:
                self._replies.close(reply)

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
                raise self._too_late(f"a place among the {running} replies of {model_id}") from None
            if standing is None:
                return
            yield _queued_event(standing)

    async def _open(
        self, caller: Caller, model_id: str, at: str, generation: generation_pb2.Generation
    ) -> tuple[Reply, Placement]:
        """Hand the request to the fellow of stage 0, and say of which ring: it may have changed while this waited.

        at: the model in whose gate it has its place.
        """
        placement, _ = self._rings.require(model_id, at)
        first = placement.record.stages[0].fellow_id
        link = await self._replies.link_of(first, self._registry.name_of(first), LINK_WAIT_S)
        placement, generation.adapter = self._rings.require(model_id, at)
        check_drawing(generation, self._ring(placement))
        request = link_pb2.ReplyRequest(
            request_id=caller.request_id,
            placement_id=placement.record.placement_id,
            epoch=placement.record.epoch,
            generation=generation,
        )
        reply = self._replies.open(link, request)
        caller.follow(reply)
        return reply, placement

    async def _events(
        self, reply: Reply, turn: Turn, meter: ReplyMeter, placement: Placement, deadline_s: float
    ) -> AsyncIterator[generation_pb2.GenerationEvent]:
        """Events until the last; each within the progress time, all within the deadline."""
        loop = asyncio.get_running_loop()
        epoch, way = placement.record.epoch, say_way(placement.record)
        waited_for = f"fellow {reply.link.fellow_name}"
        positions, is_queued = self._positions(placement), False
        while True:
            silent_s = loop.time() + self._config.progress_timeout_s
            try:
                async with asyncio.timeout_at(min(deadline_s, silent_s)):
                    event = await reply.next()
            except TimeoutError:
                computed = self._positions(placement)
                if loop.time() < deadline_s and (is_queued or computed != positions):
                    # A long prompt has no events, yet the stage computes; who waits for KV waits for another reply.
                    positions = computed
                    continue
                is_total = loop.time() >= deadline_s
                late = self._too_late(waited_for, is_total)
                reply.fail(late)
                if not is_total:
                    self._faults.take_stall(placement, epoch, late.message)
                raise late from None
            kind = event.WhichOneof("event")
            meter.take_event(event, kind)
            if is_queued or kind == "queued":
                is_queued = kind == "queued"
                turn.hold(is_queued)
            if kind == "failed":
                failed = event.failed
                raise RemoteError(read_reason(failed.reason), failed.message, **dict(failed.metadata))
            if kind == "done":
                event.done.timing.route = way
            yield event
            if kind == "done":
                return

    def _check_tokens(self, model_id: str, generation: generation_pb2.Generation) -> None:
        """Token ids must be the model's. Raises BadRequest with both numbers."""
        ids_by_field = {
            "prompt_ids": generation.prompt_ids.ids,
            "logit_bias": [bias.token for bias in generation.sampling.logit_bias],
        }
        for field, ids in ids_by_field.items():
            if ids and max(ids) >= (size := self._catalog.get(model_id).vocabulary_size):
                raise BadRequest(
                    f"token {max(ids)} of {field} is not in the vocabulary of {model_id}, which has {size}",
                    field=field,
                    token=max(ids),
                    vocabulary_size=size,
                )

    def _ring(self, placement: Placement) -> list[Fellow]:
        """The fellows that serve a placement, but for those the registry has forgotten."""
        fellows = [self._registry.get(stage.fellow_id) for stage in placement.record.stages]
        return [fellow for fellow in fellows if fellow is not None]

    def _positions(self, placement: Placement) -> int:
        """Positions stage 0 has computed, as of the last heartbeat."""
        fellow = self._registry.get(placement.record.stages[0].fellow_id)
        held = fellow.stages.get(placement.record.placement_id) if fellow else None
        return held.status.positions if held and held.status else 0

    def _too_late(self, waited_for: str, is_total: bool = True) -> SwarmError:
        limit_s = self._config.request_timeout_s if is_total else self._config.progress_timeout_s
        what = "was not done" if is_total else "made no progress"
        return DeadlinePassed(f"the reply {what} within {limit_s:g} s; waited for {waited_for}", waited_for=waited_for)


def _queued_event(standing: Standing) -> generation_pb2.GenerationEvent:
    queued = generation_pb2.GenerationEvent.Queued(position=standing.position, reason=standing.reason)
    return generation_pb2.GenerationEvent(queued=queued)
