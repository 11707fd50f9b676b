"""leader.v1.Inference: one reply per call. Thin."""

from collections.abc import AsyncIterator

import grpc
from silentswarm.leader.v1 import inference_pb2, inference_pb2_grpc

from swarm_leader.flows.generate import Generating
from swarm_leader.rpc.generations import check_generation, check_request_id


class InferenceServicer(inference_pb2_grpc.InferenceServicer):
    """Generates text."""

    def __init__(self, generating: Generating) -> None:
        self._generating = generating

    async def Generate(
        self, request: inference_pb2.GenerateRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[inference_pb2.GenerateEvent]:
        generation = check_generation(request.generation)
        caller = self._generating.caller(check_request_id(request.request_id))
        # A call may end while this generator is suspended at a yield; only the callback hears of it at once.
        context.add_done_callback(lambda _: caller.leave())
        async for event in self._generating.generate(caller, request.model_id, generation):
            yield inference_pb2.GenerateEvent(request_id=caller.request_id, event=event)
