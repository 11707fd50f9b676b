"""The guard in front of every call: what cannot be read ends one call, what was granted can be ended while it runs."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from silentswarm.fellow.v1 import fellow_link_pb2, fellow_link_pb2_grpc
from silentswarm.leader.v1 import models_pb2, models_pb2_grpc, serving_pb2, serving_pb2_grpc
from swarm_core.errors import Reason, SwarmError, Unauthenticated
from swarm_rpc.channel import dial
from swarm_rpc.errors import error_of
from swarm_rpc.limits import MESSAGE_BYTES_MAX
from swarm_rpc.server import listen, make_server

GARBAGE = b"\xff\xff\xff\xff not a message"


class Swarm(models_pb2_grpc.ModelsServicer, serving_pb2_grpc.ServingServicer, fellow_link_pb2_grpc.FellowLinkServicer):
    """Answers; keeps what it heard and how its streams ended."""

    def __init__(self) -> None:
        self.heard: list[Any] = []
        self.ends: list[type] = []
        self.endless = asyncio.Event()
        self.sent = 0

    async def GetModel(self, request, context):
        return models_pb2.Model(model_id=request.model_id)

    async def WatchModel(self, request, context):
        try:
            yield serving_pb2.ModelStatus(model_id=request.model_id)
            while request.model_id == "chatty":
                self.sent += 1
                yield serving_pb2.ModelStatus(reason="x" * 1_000_000)
            await self.endless.wait()
        except BaseException as error:
            self.ends.append(type(error))
            raise

    async def Connect(self, requests, context):
        async def read() -> None:
            async for request in requests:
                self.heard.append(request.WhichOneof("body"))

        reading = asyncio.create_task(read())
        try:
            yield fellow_link_pb2.ConnectResponse()
            await self.endless.wait()
        finally:
            reading.cancel()


@asynccontextmanager
async def served(**options: Any) -> AsyncIterator[tuple[grpc.aio.Channel, Swarm]]:
    """A server of 64 MiB messages, as a leader with a relay is, and a client."""
    server, swarm = make_server(64 * 2**20, **options), Swarm()
    models_pb2_grpc.add_ModelsServicer_to_server(swarm, server)
    serving_pb2_grpc.add_ServingServicer_to_server(swarm, server)
    fellow_link_pb2_grpc.add_FellowLinkServicer_to_server(swarm, server)
    port = listen(server, "127.0.0.1:0")
    await server.start()
    channel = dial(f"127.0.0.1:{port}", 64 * 2**20)
    try:
        async with asyncio.timeout(20):
            yield channel, swarm
    finally:
        await channel.close()
        await server.stop(None)


@pytest.mark.parametrize("garbage", [GARBAGE, random.Random(7).randbytes(200), b"\x0a\xff\xff\xff\x7fx"])
async def test_bytes_that_are_no_message_are_an_invalid_argument_and_nothing_worse(garbage: bytes):
    async with served() as (channel, _):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await channel.unary_unary("/silentswarm.leader.v1.Models/GetModel")(garbage)
        with pytest.raises(grpc.aio.AioRpcError) as watch_refused:
            await channel.unary_stream("/silentswarm.leader.v1.Serving/WatchModel")(garbage).read()
        good = await models_pb2_grpc.ModelsStub(channel).GetModel(models_pb2.GetModelRequest(model_id="m"))

    assert refused.value.code() is watch_refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert error_of(refused.value).why is Reason.BAD_REQUEST
    assert good.model_id == "m"


async def test_a_request_over_the_limit_of_control_messages_is_refused_though_the_relays_are_larger():
    async with served() as (channel, _):
        large = models_pb2.GetModelRequest(model_id="m" * MESSAGE_BYTES_MAX)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await models_pb2_grpc.ModelsStub(channel).GetModel(large)
        good = await models_pb2_grpc.ModelsStub(channel).GetModel(models_pb2.GetModelRequest(model_id="m"))

    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "larger than max" in refused.value.details()
    assert good.model_id == "m"


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (GARBAGE, grpc.StatusCode.INVALID_ARGUMENT),
        (b"\0" * (MESSAGE_BYTES_MAX + 1), grpc.StatusCode.RESOURCE_EXHAUSTED),
    ],
    ids=["garbage", "too large"],
)
async def test_a_stream_with_an_unreadable_message_ends_and_its_channel_lives(bad: bytes, code: grpc.StatusCode):
    async def messages() -> AsyncIterator[bytes]:
        yield fellow_link_pb2.ConnectRequest(heartbeat=fellow_link_pb2.Heartbeat()).SerializeToString()
        yield bad
        await asyncio.Event().wait()

    async with served() as (channel, swarm):
        call = channel.stream_stream("/silentswarm.fellow.v1.FellowLink/Connect")(messages())
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            _ = [answer async for answer in call]
        good = await models_pb2_grpc.ModelsStub(channel).GetModel(models_pb2.GetModelRequest(model_id="m"))

    assert ended.value.code() is code
    assert swarm.heard == ["heartbeat"]
    assert good.model_id == "m"


async def test_what_was_granted_can_be_ended_while_it_runs_and_is_told_when_it_is_over():
    running: list[Callable[[SwarmError], None]] = []
    over: list[str] = []

    async def authorize(access, details):
        def grant(end):
            running.append(end)
            return lambda: over.append(details.method.rpartition("/")[2])

        return grant

    async with served(authorize=authorize) as (channel, swarm):
        call = serving_pb2_grpc.ServingStub(channel).WatchModel(serving_pb2.WatchModelRequest(model_id="m"))
        await call.read()
        running[0](Unauthenticated("revoked"))
        running[0](Unauthenticated("again"))
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await call.read()
        await models_pb2_grpc.ModelsStub(channel).GetModel(models_pb2.GetModelRequest(model_id="m"))
        while not swarm.ends:  # its caller may hear of the end before the call itself is over
            await asyncio.sleep(0.01)

    assert (error_of(ended.value).why, error_of(ended.value).message) == (Reason.UNAUTHENTICATED, "revoked")
    assert swarm.ends[0] in (asyncio.CancelledError, GeneratorExit)  # while it waited, or behind what it had sent
    assert over == ["WatchModel", "GetModel"]


async def test_a_slow_reader_whose_grant_ended_hears_so_behind_what_was_sent():
    """Cancelled while it sends, grpc.aio would send no status: the reader would wait for ever."""
    running: list[Callable[[SwarmError], None]] = []

    async def authorize(access, details):
        def grant(end):
            running.append(end)
            return lambda: None

        return grant

    async with served(authorize=authorize) as (channel, swarm):
        call = serving_pb2_grpc.ServingStub(channel).WatchModel(serving_pb2.WatchModelRequest(model_id="chatty"))
        await call.read()
        seen = -1
        while seen != swarm.sent:  # until the reader's windows are full and the server waits for it
            seen = swarm.sent
            await asyncio.sleep(0.2)
        running[0](Unauthenticated("revoked"))
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            while await call.read() is not grpc.aio.EOF:
                pass

    assert error_of(ended.value).message == "revoked"
    assert swarm.sent == seen
    assert swarm.ends == [GeneratorExit]  # the servicer is done before its caller hears of the end


async def test_a_method_nobody_answers_is_unimplemented_and_no_fault_of_ours():
    async with served() as (channel, _):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await models_pb2_grpc.ModelsStub(channel).ListModels(models_pb2.ListModelsRequest())

    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def refuse_everyone(access: int, details: grpc.HandlerCallDetails) -> None:
    raise Unauthenticated("no credential of this swarm")


async def test_who_is_refused_and_says_nothing_is_refused_all_the_same():
    async with served(authorize=refuse_everyone) as (channel, _):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await fellow_link_pb2_grpc.FellowLinkStub(channel).Connect().read()

        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
