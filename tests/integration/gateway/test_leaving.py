"""Clients that leave or stop reading: the leader hears of it at once."""

import asyncio
import json
import socket

import pytest
from swarm_core.errors import FellowLost

from tests.integration.gateway.scripted_leader import WAIT_S, done, started, tokens


async def send_chat(gateway, **fields) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A chat over a socket of our own, so that it can be dropped at will."""
    host, port = gateway.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=2**12)
    body = json.dumps({"model": "tiny", "messages": [{"role": "user", "content": "hi"}], **fields}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    await writer.drain()
    return reader, writer


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("admitted", [False, True])
async def test_a_client_that_leaves_cancels_its_generation_within_a_second(gateway, stream, admitted):
    async def script(request):
        if admitted:
            yield started()
            yield tokens("a")
        await asyncio.sleep(WAIT_S)
        yield done()

    gateway.leader.scripts["tiny"] = script
    reader, writer = await send_chat(gateway, stream=stream)
    await asyncio.wait_for(gateway.leader.begun.wait(), 5)
    if stream and admitted:
        await asyncio.wait_for(reader.readuntil(b'"content":"a"'), 5)
    writer.close()

    await asyncio.wait_for(gateway.leader.ended.wait(), 1)
    assert (await gateway.get("/healthz"))[0] == 200


async def test_a_reader_that_does_not_read_is_dropped(start_gateway):
    gateway = await start_gateway(write_timeout_s=0.3)
    sent = 0

    async def script(request):
        nonlocal sent
        yield started()
        while True:
            yield tokens("z" * 50_000)
            sent += 1

    gateway.leader.scripts["tiny"] = script
    _, writer = await send_chat(gateway, stream=True)

    await asyncio.wait_for(gateway.leader.ended.wait(), 10)
    writer.close()
    # What was made without a reader is bounded by the buffers in between, not by time.
    assert sent * 50_000 < 64 * 2**20


async def test_a_reader_that_does_not_read_is_dropped_also_when_the_reply_fails(start_gateway):
    """The last words of a failure find no room, and nothing else is written whose end could be waited for."""
    gateway = await start_gateway(write_timeout_s=0.3)

    def unsent_bytes() -> int:
        return max(one.transport.get_write_buffer_size() for one in gateway.runner.server.connections if one.transport)

    async def script(request):
        yield started()
        while not unsent_bytes():
            yield tokens("z" * 50_000)
            await asyncio.sleep(0.005)
        while unsent_bytes() <= 2**16:  # from here on a write that has its end waited for waits
            yield tokens("z" * 4_000)
            await asyncio.sleep(0.005)
        raise FellowLost("anna is gone")

    gateway.leader.scripts["tiny"] = script
    host, port = gateway.url.removeprefix("http://").split(":")
    peer = socket.socket()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**12)
    peer.setblocking(False)
    await asyncio.get_running_loop().sock_connect(peer, (host, int(port)))
    body = json.dumps({"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "stream": True}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    with peer:
        await asyncio.get_running_loop().sock_sendall(peer, head.encode() + body)
        await asyncio.wait_for(gateway.leader.ended.wait(), 10)

        deadline_s = asyncio.get_running_loop().time() + 5
        while (in_flight := await requests_in_flight(gateway)) and asyncio.get_running_loop().time() < deadline_s:
            await asyncio.sleep(0.05)
    assert in_flight == 0


async def requests_in_flight(gateway) -> int:
    """Requests in work beside the one that asks."""
    async with gateway.client.get(f"{gateway.url}/metrics") as response:
        figures = await response.text()
    (line,) = (line for line in figures.splitlines() if line.startswith("silentswarm_gateway_http_requests_in_flight "))
    return int(float(line.split()[1])) - 1


async def test_a_slow_reader_slows_the_leader_and_gets_everything(start_gateway):
    gateway = await start_gateway(write_timeout_s=5)

    async def script(request):
        yield started()
        for _ in range(40):
            yield tokens("z" * 50_000)
        yield done()

    gateway.leader.scripts["tiny"] = script
    reader, writer = await send_chat(gateway, stream=True)
    got = 0
    tail = b""
    async with asyncio.timeout(15):
        while not tail.endswith(b"0\r\n\r\n"):
            piece = await reader.read(65_536)
            assert piece
            await asyncio.sleep(0.001)
            got += piece.count(b"z")
            tail = (tail + piece)[-20:]
    writer.close()

    assert got == 40 * 50_000
