"""Clients that send or read slowly hold up nobody else, and are let go of."""

import asyncio
import socket

import pytest
from swarm_gateway import bodies
from swarm_gateway.front.places import SLOW_AFTER_S, Places
from swarm_gateway.problems import HttpProblem

from tests.integration.gateway.raw_http import connect, read_reply
from tests.integration.gateway.test_failures import assert_openai_error

HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
BODY = b'{"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}'


async def begin_upload(gateway, size: int = 100) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A request whose body has begun and goes no further."""
    reader, writer = await connect(gateway)
    writer.write(HEAD + b"Content-Length: %d\r\n\r\n{" % size)
    await writer.drain()
    return reader, writer


async def test_bodies_that_do_not_come_hold_no_place_of_work(start_gateway):
    """F5: with a single place, ten slow uploads before it."""
    gateway = await start_gateway(requests_max=1)
    slow = [await begin_upload(gateway) for _ in range(10)]
    for _ in range(3):
        assert (await gateway.chat())[0] == 200
    for _, writer in slow:
        writer.close()


async def test_slow_bodies_beyond_their_places_are_turned_away_after_a_second(start_gateway):
    gateway = await start_gateway(uploads_max=8)  # and of them two for one address
    slow = [await begin_upload(gateway) for _ in range(6)]
    waiting = [asyncio.create_task(read_reply(reader)) for reader, _ in slow]
    answered, held = await asyncio.wait(waiting, timeout=SLOW_AFTER_S + 1)
    for task in held:
        task.cancel()
    refused = [task.result() for task in answered]
    for _, writer in slow:
        writer.close()

    assert len(refused) == 4
    for reply in refused:
        assert reply.status == 429
        assert_openai_error(reply.document, code="overloaded")
    assert (await gateway.chat())[0] == 200


async def test_a_body_that_trickles_is_408(start_gateway):
    """Below the least rate, long before the time a whole body may take."""
    gateway = await start_gateway(read_timeout_s=600)
    reader, writer = await begin_upload(gateway, 10_000)

    async def trickle() -> None:
        for _ in range(100):
            writer.write(b" ")
            await asyncio.sleep(0.2)

    task = asyncio.create_task(trickle())
    began_s = asyncio.get_running_loop().time()
    async with asyncio.timeout(bodies.PATIENCE_S + 5):
        head = await reader.readuntil(b"\r\n\r\n")
    took_s = asyncio.get_running_loop().time() - began_s
    task.cancel()
    writer.close()

    assert head.startswith(b"HTTP/1.1 408 ")
    assert took_s < bodies.PATIENCE_S + 2


async def test_a_body_too_late_is_408(start_gateway):
    gateway = await start_gateway(read_timeout_s=0.3)
    reader, writer = await begin_upload(gateway)
    reply = await read_reply(reader)
    writer.close()

    assert reply.status == 408
    assert_openai_error(reply.document, code="request_timeout")


@pytest.mark.parametrize("begun", [b"", b"GET /healthz HTTP/1.1\r\nX: "])
async def test_a_head_that_does_not_come_is_408(start_gateway, begun):
    gateway = await start_gateway(header_timeout_s=0.3)
    reader, writer = await connect(gateway)
    writer.write(begun)
    reply = await read_reply(reader)
    rest = await asyncio.wait_for(reader.read(), 5)
    writer.close()

    assert reply.status == 408
    assert rest == b""
    assert_openai_error(reply.document, code="request_timeout")


async def test_a_second_head_on_a_connection_has_the_same_time(start_gateway):
    gateway = await start_gateway(header_timeout_s=0.3)
    reader, writer = await connect(gateway)
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    first = await read_reply(reader)
    await asyncio.sleep(0.5)  # idle is not slow
    writer.write(b"GET /healthz HTTP/1.1\r\n")
    second = await read_reply(reader)
    writer.close()

    assert (first.status, second.status) == (200, 408)


async def test_a_long_request_is_no_slow_head(start_gateway):
    gateway = await start_gateway(header_timeout_s=0.2)
    gateway.leader.statuses = [0.6]

    assert (await gateway.get("/healthz"))[0] == 200
    async with gateway.client.get(gateway.url + "/api/v1/models/tiny/status/stream") as response:
        await response.read()
        assert response.status == 200


async def test_idle_connections_make_room_for_new_ones(start_gateway):
    gateway = await start_gateway(connections_max=4)
    idle = [await connect(gateway) for _ in range(12)]
    async with asyncio.timeout(5):
        assert (await gateway.get("/healthz"))[0] == 200
        ended = await asyncio.gather(*(reader.read() for reader, _ in idle[:8]))
    for _, writer in idle:
        writer.close()

    assert ended == [b""] * 8


async def test_connections_in_use_make_no_room_and_the_next_client_is_told(start_gateway):
    gateway = await start_gateway(connections_max=2)
    gateway.leader.statuses = [30.0]
    streams = []
    for _ in range(2):
        reader, writer = await connect(gateway)
        writer.write(b"GET /api/v1/models/tiny/status/stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
        streams.append(writer)
    async with asyncio.timeout(5):
        while [rpc for rpc, _ in gateway.leader.presented].count("WatchModel") < 2:
            await asyncio.sleep(0.01)
    reader, writer = await connect(gateway)
    reply = await read_reply(reader)
    for each in (writer, *streams):
        each.close()

    assert reply.status == 503
    assert_openai_error(reply.document, code="overloaded")


async def test_readers_that_do_not_read_hold_no_place_and_are_dropped(start_gateway):
    """Also those of a plain reply: the document of the API is larger than what the system buffers."""
    gateway = await start_gateway(requests_max=2, write_timeout_s=0.5)
    host, port = gateway.url.removeprefix("http://").split(":")
    readers = []
    for _ in range(4):
        plain = socket.socket()
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        plain.setblocking(False)
        await asyncio.get_running_loop().sock_connect(plain, (host, int(port)))
        request = b"GET /api/v1/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 300
        await asyncio.get_running_loop().sock_sendall(plain, request)
        readers.append(plain)
    server = gateway.runner.server
    async with asyncio.timeout(20):
        while len(server.connections) < 4:
            await asyncio.sleep(0.01)
        for _ in range(5):
            assert (await gateway.chat())[0] == 200
        while len(server.connections) > 1:  # the client's own
            await asyncio.sleep(0.05)
    for plain in readers:
        plain.close()


def test_bodies_on_their_way_are_bounded_in_bytes():
    places = Places(requests_max=10, uploads_max=4, body_bytes_max=100, on_change=lambda count: None)
    with places.place("a", False) as place, place.uploading() as upload:
        upload.grow(1600)
        with places.place("b", False) as other, pytest.raises(HttpProblem), other.uploading() as second:
            second.grow(1)
    with places.place("a", False) as place, place.uploading() as upload:
        upload.grow(1600)


def test_a_place_lost_while_its_body_came_is_429_and_counted_once():
    seen = []
    places = Places(requests_max=1, uploads_max=4, body_bytes_max=100, on_change=seen.append)
    with pytest.raises(HttpProblem) as refused, places.place("a", False) as place, place.uploading():
        holder = places.place("b", False)
        holder.__enter__()
    holder.__exit__(None, None, None)

    assert refused.value.problem.status == 429
    assert seen[-1] == 0
