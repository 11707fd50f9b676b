"""What a chat client gets, whole and streamed, when all goes well."""

import asyncio
import json

import pytest
from silentswarm.core.v1 import generation_pb2

from tests.integration.gateway.scripted_leader import done, started, tokens

TIMING = {
    "queue_ms": 1.0,
    "prefill_ms": 20.0,
    "decode_ms": 30.0,
    "stage0_ms": 2.5,
    "stage1_ms": 3.5,
    "link_ms": 0.5,
    "bytes_per_token": 2304.0,
    "route": "direct",
}


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/api/v1/chat/completions", "//v1/chat/completions/"])
async def test_a_whole_reply_has_the_shape_clients_rely_on(gateway, path):
    status, reply, headers = await gateway.chat(path)

    assert status == 200
    assert reply["id"].startswith("chatcmpl-")
    assert isinstance(reply.pop("created"), int)
    assert reply | {"id": ""} == {
        "id": "",
        "object": "chat.completion",
        "model": "tiny",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Héllo 🙂", "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
        "swarm": {"timing": TIMING},
    }
    assert headers["x-request-id"]


async def test_a_stream_is_exactly_these_bytes(gateway):
    status, text, headers = await gateway.chat(stream=True)

    first = json.loads(text.split("\n\n")[0].removeprefix("data: "))
    head = f'"id":"{first["id"]}","object":"chat.completion.chunk","created":{first["created"]},"model":"tiny"'
    ends = '"logprobs":null,"finish_reason":null}]'
    timing = json.dumps(TIMING, separators=(",", ":"))
    assert status == 200
    assert text == (
        f'data: {{{head},"choices":[{{"index":0,"delta":{{"role":"assistant","content":""}},{ends}}}\n\n'
        f'data: {{{head},"choices":[{{"index":0,"delta":{{"content":"Hé"}},{ends}}}\n\n'
        f'data: {{{head},"choices":[{{"index":0,"delta":{{"content":"llo 🙂"}},{ends}}}\n\n'
        f'data: {{{head},"choices":[{{"index":0,"delta":{{}},"logprobs":null,"finish_reason":"stop"}}],'
        f'"swarm":{{"timing":{timing}}}}}\n\n'
        "data: [DONE]\n\n"
    )
    assert headers["Content-Type"] == "text/event-stream; charset=utf-8"
    assert headers["Cache-Control"] == "no-cache"
    assert headers["X-Accel-Buffering"] == "no"
    assert headers["x-request-id"]


async def test_counts_come_last_and_only_when_asked_for(gateway):
    _, text, _ = await gateway.chat(stream=True, stream_options={"include_usage": True})

    chunks = [json.loads(event.removeprefix("data: ")) for event in text.split("\n\n")[:-2]]
    assert [chunk["usage"] for chunk in chunks[:-1]] == [None] * 4
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"] == {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    assert len({(chunk["id"], chunk["created"], chunk["model"]) for chunk in chunks}) == 1


async def test_line_ends_of_other_alphabets_do_not_end_an_event(gateway):
    async def script(request):
        for event in (started(), tokens("a\u2028b\u2029c\u0085d\r\ne"), done()):
            yield event

    gateway.leader.scripts["tiny"] = script
    _, text, _ = await gateway.chat(stream=True)

    events = [line for line in text.splitlines() if line]
    assert (
        json.loads(events[1].removeprefix("data: "))["choices"][0]["delta"]["content"] == "a\u2028b\u2029c\u0085d\r\ne"
    )


async def test_a_reply_cut_by_its_limit_says_length_both_ways(gateway):
    async def script(request):
        for event in (started(), tokens("a"), done(generation_pb2.FINISH_REASON_LENGTH)):
            yield event

    gateway.leader.scripts["tiny"] = script
    _, whole, _ = await gateway.chat()
    _, streamed, _ = await gateway.chat(stream=True)

    assert whole["choices"][0]["finish_reason"] == "length"
    assert '"delta":{},"logprobs":null,"finish_reason":"length"' in streamed


async def test_tokens_are_sent_as_they_come(gateway):
    go_on = asyncio.Event()

    async def script(request):
        yield started()
        yield tokens("first")
        await go_on.wait()
        yield tokens("second")
        yield done()

    gateway.leader.scripts["tiny"] = script
    body = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "stream": True}
    async with gateway.client.post(gateway.url + "/v1/chat/completions", json=body) as response:
        seen = b""
        async with asyncio.timeout(5):
            while b"first" not in seen:
                seen += await response.content.readany()
        assert b"second" not in seen
        go_on.set()
        seen += await response.content.read()

    assert seen.endswith(b"data: [DONE]\n\n")


async def test_silence_is_filled_with_comments(start_gateway):
    gateway = await start_gateway(keep_alive_s=0.05)

    async def script(request):
        yield started()
        await asyncio.sleep(0.3)
        yield tokens("late")
        yield done()

    gateway.leader.scripts["tiny"] = script
    _, text, _ = await gateway.chat(stream=True)

    assert 2 <= text.count(": keep-alive\n\n") <= 6
    assert text.index(": keep-alive") < text.index("late")


async def test_the_leader_gets_what_was_asked(gateway):
    await gateway.chat(
        messages=[
            {"role": "developer", "content": "be brief"},
            {"role": "user", "content": [{"type": "text", "text": "x"}]},
        ],
        temperature=0.5,
        top_k=4,
        seed=-1,
        stop="END",
        max_tokens=5,
        max_completion_tokens=9,
        chat_template_kwargs={"enable_thinking": False, "other": 1},
        ignore_eos=True,
        user="ignored",
    )

    asked = gateway.leader.asked[0]
    assert [(message.role, message.content) for message in asked.generation.chat.messages] == [
        ("system", "be brief"),
        ("user", "x"),
    ]
    assert asked.generation.sampling == generation_pb2.Sampling(temperature=0.5, top_k=4, seed=2**64 - 1)
    assert list(asked.generation.stop) == ["END"]
    assert asked.generation.new_tokens_max == 9
    assert asked.generation.chat.HasField("enable_thinking") and not asked.generation.chat.enable_thinking
    assert asked.generation.ignore_eos


async def test_every_call_has_a_fresh_id_and_concurrent_ones_keep_apart(gateway):
    async def script(request):
        words = request.generation.chat.messages[0].content
        yield started()
        for letter in words:
            await asyncio.sleep(0.005)
            yield tokens(letter)
        yield done()

    gateway.leader.scripts["tiny"] = script
    asked = [f"words of {at}" for at in range(8)]
    replies = await asyncio.gather(*(gateway.chat(messages=[{"role": "user", "content": words}]) for words in asked))

    assert [reply["choices"][0]["message"]["content"] for _, reply, _ in replies] == asked
    assert len({reply["id"] for _, reply, _ in replies}) == 8


async def test_a_callers_request_id_is_given_back(gateway):
    headers = {"X-Request-Id": "mine-1"}
    async with gateway.client.get(gateway.url + "/healthz", headers=headers) as response:
        assert response.headers["x-request-id"] == "mine-1"
    async with gateway.client.get(gateway.url + "/healthz", headers={"X-Request-Id": "not a word"}) as response:
        assert response.headers["x-request-id"].startswith("req_")
