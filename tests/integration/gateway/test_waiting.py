"""Requests that wait for a place: what their clients see, and that they may leave."""

import asyncio
import json

import pytest
from swarm_core import errors

from tests.integration.gateway.scripted_leader import WAIT_S, done, queued, started, tokens
from tests.integration.gateway.test_failures import assert_openai_error
from tests.integration.gateway.test_leaving import send_chat


def waits(*positions: int, go_on: asyncio.Event):
    """A reply that stands at these positions, then starts once it may."""

    async def script(request):
        for position in positions:
            yield queued(position)
        await go_on.wait()
        yield started()
        yield tokens("at last")
        yield done()

    return script


async def test_a_wait_that_is_short_leaves_no_trace(gateway):
    go_on = asyncio.Event()
    go_on.set()
    gateway.leader.scripts["tiny"] = waits(3, 2, 1, go_on=go_on)
    _, streamed, _ = await gateway.chat(stream=True)
    status, whole, _ = await gateway.chat()

    assert "\n: " not in streamed and not streamed.startswith(":")
    assert streamed.count('"role":"assistant"') == 1 and "at last" in streamed
    assert (status, whole["choices"][0]["message"]["content"]) == (200, "at last")


async def test_a_stream_is_not_begun_while_its_request_only_waits(start_gateway):
    """So that a refusal after a short wait is still a status of its own."""
    gateway = await start_gateway(keep_alive_s=5)

    async def script(request):
        yield queued(1)
        raise errors.Overloaded("nobody left within 30 s")

    gateway.leader.scripts["tiny"] = script
    status, document, headers = await gateway.chat(stream=True)

    assert status == 429
    assert_openai_error(document, code="overloaded")
    assert headers["Retry-After"]


async def test_a_long_wait_opens_the_stream_and_says_where_it_stands(start_gateway):
    gateway = await start_gateway(keep_alive_s=0.2)
    go_on = asyncio.Event()
    gateway.leader.scripts["tiny"] = waits(3, go_on=go_on)
    reader, writer = await send_chat(gateway, stream=True)
    async with asyncio.timeout(5):
        head = await reader.readuntil(b"\r\n\r\n")
        seen = await reader.readuntil(b": waiting, position 3: 8 of 8 places are taken\n\n")
        seen += await reader.readuntil(b": waiting, position 3: 8 of 8 places are taken\n\n")
        go_on.set()
        seen += await reader.readuntil(b"[DONE]")
    writer.close()

    assert head.startswith(b"HTTP/1.1 200")
    assert seen.index(b": waiting") < seen.index(b'"role":"assistant"') < seen.index(b"at last")


async def test_a_new_position_is_told_at_once_on_an_open_stream(start_gateway):
    gateway = await start_gateway(keep_alive_s=0.2)
    shown, go_on = asyncio.Event(), asyncio.Event()

    async def script(request):
        yield queued(2)
        await shown.wait()
        yield queued(1, "its place\r\n\r\ndata: {} is being cleared")
        yield queued(1, "its place\r\n\r\ndata: {} is being cleared")
        await go_on.wait()
        yield started()
        yield done()

    gateway.leader.scripts["tiny"] = script
    reader, writer = await send_chat(gateway, stream=True)
    async with asyncio.timeout(5):
        await reader.readuntil(b": waiting, position 2")
        shown.set()
        await reader.readuntil(b": waiting, position 1: its place data: {} is being cleared\n\n")
        go_on.set()
        rest = await reader.readuntil(b"[DONE]")
    writer.close()

    assert rest.count(b'"role":"assistant"') == 1


async def test_a_failure_after_a_long_wait_is_an_event_of_the_stream(start_gateway):
    gateway = await start_gateway(keep_alive_s=0.1)

    async def script(request):
        yield queued(1)
        await asyncio.sleep(0.3)
        raise errors.FellowLost("anna is gone")

    gateway.leader.scripts["tiny"] = script
    status, text, _ = await gateway.chat(stream=True)

    assert status == 200
    assert text.startswith(": waiting, position 1") and "[DONE]" not in text
    assert_openai_error(json.loads(text.split("\n\n")[-2].removeprefix("data: ")), code="fellow_lost")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("keep_alive_s", [0.05, 5])
async def test_a_client_that_leaves_while_it_waits_cancels_its_request(start_gateway, stream, keep_alive_s):
    gateway = await start_gateway(keep_alive_s=keep_alive_s)
    waiting = asyncio.Event()

    async def script(request):
        yield queued(2)
        waiting.set()
        await asyncio.sleep(WAIT_S)

    gateway.leader.scripts["tiny"] = script
    reader, writer = await send_chat(gateway, stream=stream)
    await asyncio.wait_for(waiting.wait(), 5)
    if stream and keep_alive_s < 1:
        await asyncio.wait_for(reader.readuntil(b": waiting, position 2"), 5)
    writer.close()

    await asyncio.wait_for(gateway.leader.ended.wait(), 1)
    assert (await gateway.get("/healthz"))[0] == 200


async def test_comments_go_on_while_a_long_prompt_is_computed(start_gateway):
    gateway = await start_gateway(keep_alive_s=0.1)
    seen_enough = asyncio.Event()

    async def script(request):
        yield queued(1)
        yield started(prompt_tokens=5000)
        await seen_enough.wait()
        yield done()

    gateway.leader.scripts["tiny"] = script
    reader, writer = await send_chat(gateway, stream=True)
    async with asyncio.timeout(5):
        for _ in range(3):
            before = await reader.readuntil(b": keep-alive\n\n")
        seen_enough.set()
        rest = await reader.readuntil(b"[DONE]")
    writer.close()

    assert b"waiting" not in before + rest
    assert rest.count(b'"role":"assistant"') == 1


async def test_a_reply_that_is_held_in_its_middle_says_why_in_comments(start_gateway):
    """A stage died: its reader learns what is being waited for, and hears of it no more once the text goes on."""
    gateway = await start_gateway(keep_alive_s=0.1)
    go_on, end = asyncio.Event(), asyncio.Event()

    async def script(request):
        yield started()
        yield tokens("half")
        yield queued(1, "the ring broke at stage 1")
        await go_on.wait()
        yield tokens(" and half")
        await end.wait()
        yield done()

    gateway.leader.scripts["tiny"] = script
    reader, writer = await send_chat(gateway, stream=True)
    async with asyncio.timeout(5):
        held = await reader.readuntil(b": waiting, position 1: the ring broke at stage 1\n\n")
        await reader.readuntil(b": waiting, position 1: the ring broke at stage 1\n\n")
        go_on.set()
        await reader.readuntil(b" and half")
        after = await reader.readuntil(b": keep-alive\n\n")
        end.set()
        after += await reader.readuntil(b"[DONE]")
    writer.close()

    assert b"half" in held and b": waiting" not in after
