"""Errors with long words over a real server: whatever their length, they arrive as what they are."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
from silentswarm.leader.v1 import status_pb2, status_pb2_grpc
from swarm_core.errors import LoadFailed, Reason, SwarmError
from swarm_rpc.channel import dial
from swarm_rpc.errors import FACTS_BYTES_MAX, MESSAGE_BYTES_MAX
from swarm_rpc.server import listen, make_server

from tests.integration.leader.rig import refusal_of

BAR = "█" * (4096 // 3)  # what a library's progress bar leaves on stderr; each is nine bytes percent-encoded


class Failing(status_pb2_grpc.StatusServicer):
    """Fails every call with one error."""

    def __init__(self, error: SwarmError) -> None:
        self._error = error

    async def GetHealth(
        self, request: status_pb2.GetHealthRequest, context: grpc.aio.ServicerContext
    ) -> status_pb2.GetHealthResponse:
        raise self._error


@asynccontextmanager
async def failing_with(error: SwarmError) -> AsyncIterator[status_pb2_grpc.StatusStub]:
    """A server that fails with this error, dialled."""
    server = make_server()
    status_pb2_grpc.add_StatusServicer_to_server(Failing(error), server)
    port = listen(server, "127.0.0.1:0")
    await server.start()
    channel = dial(f"127.0.0.1:{port}")
    try:
        yield status_pb2_grpc.StatusStub(channel)
    finally:
        await channel.close()
        await server.stop(None)


async def test_a_message_of_4_kib_of_progress_bar_keeps_its_reason_in_every_call():
    error = LoadFailed(f"stage 1 on kitchen: {BAR} 100%", fellow="kitchen", stage=1, tail=BAR)
    async with failing_with(error) as stub:
        refusals = [await refusal_of(stub.GetHealth(status_pb2.GetHealthRequest())) for _ in range(100)]

    assert {refusal.why for refusal in refusals} == {Reason.LOAD_FAILED}
    assert {refusal.facts["stage"] for refusal in refusals} == {"1"}
    message = refusals[0].message
    assert message.startswith("stage 1 on kitchen: ██")
    assert message.endswith("█ 100%")
    assert len(message.encode()) <= MESSAGE_BYTES_MAX
    assert sum(len(fact.encode()) for fact in refusals[0].facts.values()) <= FACTS_BYTES_MAX


async def test_words_that_fit_arrive_as_they_are():
    words = "x" * MESSAGE_BYTES_MAX
    async with failing_with(LoadFailed(words, free="kitchen 1.00 GB")) as stub:
        refusal = await refusal_of(stub.GetHealth(status_pb2.GetHealthRequest()))

    assert (refusal.message, refusal.facts) == (words, {"free": "kitchen 1.00 GB"})


async def test_among_too_many_facts_the_short_ones_arrive():
    facts = {"stage": 3, "fellow": "kitchen", **{f"list{index}": "name, " * 200 for index in range(40)}}
    async with failing_with(LoadFailed("no room", **facts)) as stub:
        refusal = await refusal_of(stub.GetHealth(status_pb2.GetHealthRequest()))

    assert (refusal.why, refusal.facts["stage"], refusal.facts["fellow"]) == (Reason.LOAD_FAILED, "3", "kitchen")
