"""leader.v1.Inference: one reply per call, from its beginning or from where a call broke off. Thin."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing

import grpc
from silentswarm.core.v1 import generation_pb2
from silentswarm.leader.v1 import inference_pb2, inference_pb2_grpc
from swarm_core.errors import BadRequest

from swarm_leader.flows.caller import Caller
from swarm_leader.flows.doors import Doors
from swarm_leader.flows.generate import Generating
from swarm_leader.flows.usage import Counting
from swarm_leader.rpc.access import current_caller
from swarm_leader.rpc.generations import check_generation, check_request_id

KEPT_WAIT_S = 10.0  # a fellow opens its links again a few seconds after the leader is back
YOUNG_S = 20.0  # from then on every fellow that lives has come back
Events = AsyncGenerator[generation_pb2.GenerationEvent, None]


class InferenceServicer(inference_pb2_grpc.InferenceServicer):
    """Generates text. now_s: a clock that only grows."""

    def __init__(self, generating: Generating, doors: Doors, now_s: Callable[[], float]) -> None:
        self._generating = generating
        self._doors = doors
        self._counting = Counting()
        self._now_s = now_s
        self._began_s = now_s()

    async def Generate(
        self, request: inference_pb2.GenerateRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[inference_pb2.GenerateEvent]:
        generation = check_generation(request.generation)
        caller = self._caller(request.request_id, context)
        goes_on = generation.resume.sequence > 0
        if caller.owner:
            generation.caller = caller.owner
        events = self._generating.generate(caller, request.model_id, generation)
        async with aclosing(self._counted(events, caller, goes_on)) as told:
            async for event in told:
                yield inference_pb2.GenerateEvent(request_id=caller.request_id, event=event)

    async def Resume(
        self, request: inference_pb2.ResumeRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[inference_pb2.GenerateEvent]:
        if not check_request_id(request.request_id):
            raise BadRequest("request_id is empty; name the reply that goes on", field="request_id")
        caller = self._caller(request.request_id, context)
        young_s = max(0.0, self._began_s + YOUNG_S - self._now_s())
        events = self._generating.resume(caller, request.after_sequence, min(KEPT_WAIT_S, young_s))
        async with aclosing(self._counted(events, caller, goes_on=True)) as told:
            async for event in told:
                yield inference_pb2.GenerateEvent(request_id=caller.request_id, event=event)

    def _caller(self, request_id: str, context: grpc.aio.ServicerContext) -> Caller:
        """Who waits for the reply, until the call or its token ends."""
        owner = current_caller().token_id
        caller = self._generating.caller(check_request_id(request_id), owner)
        # A call may end while this generator is suspended at a yield; only the callback hears of it at once.
        context.add_done_callback(lambda _: caller.leave())
        # Nor does it hear of the end of its token while a slow reader keeps it there.
        over = self._doors.calls.follow(owner, lambda _: caller.leave())
        context.add_done_callback(lambda _: over())
        return caller

    def _counted(self, events: Events, caller: Caller, goes_on: bool) -> Events:
        """The reply. Where tokens are asked for, it is its token's, and counted."""
        if not caller.owner:
            return events
        add = self._doors.tokens.take_use
        return self._counting.counted(events, lambda used: add(caller.owner, used), caller.request_id, goes_on)
