"""leader.v1.Inference: one reply per call. Thin."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

import grpc
from silentswarm.core.v1 import generation_pb2
from silentswarm.leader.v1 import inference_pb2, inference_pb2_grpc

from swarm_leader.flows.doors import Doors
from swarm_leader.flows.generate import Caller, Generating
from swarm_leader.flows.usage import counted
from swarm_leader.rpc.access import current_caller
from swarm_leader.rpc.generations import check_generation, check_request_id


class InferenceServicer(inference_pb2_grpc.InferenceServicer):
    """Generates text."""

    def __init__(self, generating: Generating, doors: Doors) -> None:
        self._generating = generating
        self._doors = doors

    async def Generate(
        self, request: inference_pb2.GenerateRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[inference_pb2.GenerateEvent]:
        generation = check_generation(request.generation)
        caller = self._generating.caller(check_request_id(request.request_id))
        # A call may end while this generator is suspended at a yield; only the callback hears of it at once.
        context.add_done_callback(lambda _: caller.leave())
        # Nor does it hear of the end of its token while a slow reader keeps it there.
        over = self._doors.calls.follow(current_caller().token_id, lambda _: caller.leave())
        context.add_done_callback(lambda _: over())
        async with aclosing(self._events(caller, request.model_id, generation)) as events:
            async for event in events:
                yield inference_pb2.GenerateEvent(request_id=caller.request_id, event=event)

    def _events(
        self, caller: Caller, model_id: str, generation: generation_pb2.Generation
    ) -> AsyncGenerator[generation_pb2.GenerationEvent, None]:
        """The reply. Where tokens are asked for, it is its token's, and counted."""
        token_id = current_caller().token_id
        tokens = self._doors.tokens
        if not token_id:
            return self._generating.generate(caller, model_id, generation)
        generation.caller = token_id
        events = self._generating.generate(caller, model_id, generation)
        return counted(events, lambda used: tokens.take_use(token_id, used))
