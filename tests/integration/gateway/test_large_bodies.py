"""Bodies that are large, deep or odd: refused by name where they cannot be, and never in the way of running streams."""

import asyncio
import json
import time

import pytest

from tests.integration.gateway.scripted_leader import done, started, tokens
from tests.integration.gateway.test_failures import assert_openai_error

CHAT = "/v1/chat/completions"
HEAD = b'{"model":"tiny","messages":[{"role":"user","content":"hi"}],'
MIB = 2**20


async def post(gateway, body: bytes, path: str = CHAT) -> tuple[int, dict]:
    """A body as it is."""
    async with gateway.client.post(gateway.url + path, data=body) as response:
        return response.status, await response.json()


@pytest.mark.parametrize(
    "rest",
    [
        b'"seed":1,"seed":2}',
        b'"tools":[{"a":1,"a":2}]}',
        b'"temperature":1e400}',
        b'"temperature":-1e400}',
        b'"temperature":Infinity}',
        b'"user":"\\ud800"}',
        b'"user":"\\udc00\\ud800"}',
        b'"user":"\xed\xa0\x80"}',
        b'"seed":' + b"9" * 5000 + b"}",
        b'"x":' + b"[" * 300 + b"]" * 300 + b"}",
        b'"x":' + b'{"a":' * 300 + b"1" + b"}" * 300 + b"}",
        b'"x":[' + b"1," * 500_001 + b"1]}",
        b'"x":[' + b"[]," * 50_001 + b"1]}",
        b'"x":{' + b",".join(b'"%d":1' % number for number in range(100_001)) + b"}}",
    ],
    ids=lambda rest: rest[:20].decode(errors="replace"),
)
async def test_json_nobody_needs_is_refused_as_such(gateway, rest):
    status, document = await post(gateway, HEAD + rest)

    assert status == 400
    assert_openai_error(document, code="invalid_json", type="invalid_request_error")


@pytest.mark.parametrize(
    ("rest", "param"),
    [
        (b'"temperature":1e308}', "temperature"),
        (b'"temperature":-1}', "temperature"),
        (b'"temperature":"0.7"}', "temperature"),
        (b'"temperature":true}', "temperature"),
        (b'"top_k":0.01}', "top_k"),
        (b'"max_tokens":0}', "max_tokens"),
        (b'"max_tokens":-1}', "max_tokens"),
        (b'"max_tokens":9223372036854775808}', "max_tokens"),
        (b'"seed":18446744073709551616}', "seed"),
        (b'"top_logprobs":1000000,"logprobs":true}', "top_logprobs"),
        (b'"top_logprobs":-1,"logprobs":true}', "top_logprobs"),
        (b'"n":129}', "n"),
    ],
)
async def test_a_number_that_cannot_be_is_named_and_the_next_request_works(gateway, rest, param):
    """F7, F11; field report 40."""
    status, document = await post(gateway, HEAD + rest)
    after, _ = await post(gateway, HEAD + b'"top_k":1}')

    assert (status, after) == (400, 200)
    assert_openai_error(document, param=param, type="invalid_request_error")


@pytest.mark.parametrize("size", [int(0.9 * MIB), int(1.1 * MIB), 3 * MIB])
async def test_a_conversation_of_megabytes_is_read(gateway, size):
    """Field report 41. One the leader cannot take, or the gateway, is 413."""
    body = json.dumps({"model": "tiny", "messages": [{"role": "user", "content": 'wo "rd", {[:' * (size // 16)}]})

    status, _ = await post(gateway, body.encode())

    assert status == 200


async def test_texts_full_of_commas_and_brackets_are_texts(gateway):
    """They are counted outside of texts only, wherever a text begins and ends, with every kind of escape in it."""
    text = 'a,"b":[{\\' * 60_000
    status, _ = await post(
        gateway, json.dumps({"model": "tiny", "messages": [{"role": "user", "content": text}]}).encode()
    )

    assert status == 200
    assert gateway.leader.asked[-1].generation.chat.messages[0].content == text


async def test_large_bodies_do_not_make_running_streams_stutter(gateway):
    """The longest silence of a stream whose tokens come every few ms; a process of its own adds about 50 ms to it.

    Here client, gateway and leader share one loop, on a machine that may be busy.
    """
    gaps_s = []
    bodies = [
        HEAD + b'"x":[' + b"[]," * (12 * MIB // 3) + b"1]}",
        HEAD.replace(b"tiny", b"nope") + b'"x":[' + b"1," * 499_000 + b"1]}",
        json.dumps({"model": "nope", "messages": [{"role": "user", "content": "wo, rd" * (2 * MIB // 6)}]}).encode(),
    ]
    finished = asyncio.Event()

    async def script(request):
        yield started()
        while not finished.is_set():
            await asyncio.sleep(0.003)
            yield tokens("x")
        yield done()

    async def listen() -> None:
        body = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "stream": True}
        async with gateway.client.post(gateway.url + CHAT, json=body) as response:
            last_s = time.monotonic()
            async for _ in response.content.iter_any():
                now_s = time.monotonic()
                gaps_s.append(now_s - last_s)
                last_s = now_s

    gateway.leader.scripts["tiny"] = script
    listening = asyncio.create_task(listen())
    while len(gaps_s) < 5:
        await asyncio.sleep(0.01)
    for _ in range(3):
        statuses = [status for status, _ in await asyncio.gather(*(post(gateway, body) for body in bodies))]
        assert statuses == [400, 404, 404]
    finished.set()
    await asyncio.wait_for(listening, 10)

    assert max(gaps_s) < 1.0  # parsed as they came, the first body alone would hold everything for 1.5 s
