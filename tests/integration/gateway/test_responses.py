"""/v1/responses over real sockets: the document, and the events that tell it as it comes."""

import asyncio
import json
from typing import Any

import pytest
from silentswarm.core.v1 import generation_pb2
from swarm_core import errors

from tests.integration.gateway.scripted_leader import done, started, tokens
from tests.integration.gateway.test_chat_shapes import CALLS, batch, call, likelihood, say
from tests.integration.gateway.test_failures import assert_openai_error

openai = pytest.importorskip("openai", reason="the openai package is not installed")
TOOLS = [{"type": "function", "name": "add", "parameters": {"type": "object", "properties": {}}, "strict": False}]


async def respond(gateway, **fields: Any) -> tuple[int, Any]:
    """A response: status, and JSON or the text of a stream."""
    body = {"model": "tiny", "input": "hi", **fields}
    async with gateway.client.post(gateway.url + "/v1/responses", json=body) as response:
        text = await response.text()
        return response.status, json.loads(text) if response.content_type == "application/json" else text


def events_of(text: str) -> list[dict]:
    """The events of a stream, each named as its type and numbered without a gap."""
    events = []
    for event in text.split("\n\n")[:-1]:
        name, _, rest = event.partition("\n")
        events.append(json.loads(rest.removeprefix("data: ")))
        assert name == f"event: {events[-1]['type']}"
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    return events


@pytest.fixture
async def client(gateway):
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="none", max_retries=0) as made:
        yield made


async def test_a_whole_response_has_the_shape_clients_rely_on(gateway):
    status, response = await respond(gateway, instructions="be brief", metadata={"a": "b"})

    assert status == 200
    assert response["id"].startswith("resp_") and response["object"] == "response"
    assert (response["status"], response["error"], response["incomplete_details"]) == ("completed", None, None)
    assert (response["instructions"], response["metadata"], response["store"]) == ("be brief", {"a": "b"}, False)
    (message,) = response["output"]
    assert message.pop("id").startswith("msg_")
    assert message == {
        "type": "message",
        "status": "completed",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "Héllo 🙂", "annotations": [], "logprobs": []}],
    }
    assert response["usage"] == {
        "input_tokens": 7,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": 3,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 10,
    }
    assert response["swarm"]["timing"]["route"] == "direct"


async def test_a_stream_tells_every_event_of_every_item_in_order(gateway):
    """O57: reasoning, then text, then a call; nothing is left open, and the last event holds all of it."""
    say(
        gateway,
        started(),
        batch(reasoning="hm"),
        batch(reasoning="m"),
        tokens("I "),
        tokens("look"),
        call(0, "add", '{"a":'),
        call(0, "", "1}"),
        done(CALLS),
    )
    _, text = await respond(gateway, tools=TOOLS, stream=True)
    events = events_of(text)

    assert [event["type"].removeprefix("response.") for event in events] == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "reasoning_text.delta",
        "reasoning_text.delta",
        "reasoning_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]
    final = events[-1]["response"]
    assert [item["type"] for item in final["output"]] == ["reasoning", "message", "function_call"]
    assert [event["item"] for event in events if event["type"].endswith("output_item.done")] == final["output"]
    added = [event["item"]["id"] for event in events if event["type"].endswith("output_item.added")]
    assert added == [item["id"] for item in final["output"]]
    assert final["output"][0]["content"] == [{"type": "reasoning_text", "text": "hmm"}]
    assert final["output"][1]["content"][0]["text"] == "I look"
    assert final["output"][2] | {"id": "", "call_id": ""} == {
        "id": "",
        "type": "function_call",
        "status": "completed",
        "arguments": '{"a":1}',
        "call_id": "",
        "name": "add",
    }
    assert final["output"][2]["call_id"].startswith("call_")
    assert {event["item_id"] for event in events if "item_id" in event} == set(added)
    assert "[DONE]" not in text


async def test_the_published_client_parses_every_event_and_ends_with_the_whole(gateway, client):
    say(gateway, started(), batch(reasoning="hm"), tokens("I look"), call(0, "add", '{"a":1}'), done(CALLS))
    async with client.responses.stream(model="tiny", input="hi", tools=TOOLS) as stream:
        events = [event async for event in stream]
        final = await stream.get_final_response()
    whole = await client.responses.create(model="tiny", input="hi", tools=TOOLS)

    assert final.output_text == whole.output_text == "I look"
    assert [item.type for item in final.output] == [item.type for item in whole.output]
    assert json.loads(final.output[2].arguments) == {"a": 1}
    assert type(events[0].response).__name__ == "Response" and events[-1].type == "response.completed"
    assert whole.usage.total_tokens == 10


async def test_a_response_cut_by_its_limit_is_incomplete_both_ways(gateway):
    say(gateway, started(), tokens("half"), done(generation_pb2.FINISH_REASON_LENGTH))
    _, whole = await respond(gateway)
    _, text = await respond(gateway, stream=True)
    last = events_of(text)[-1]

    assert last["type"] == "response.incomplete"
    for response in (whole, last["response"]):
        assert response["status"] == response["output"][0]["status"] == "incomplete"
        assert response["incomplete_details"] == {"reason": "max_output_tokens"}


async def test_two_calls_are_two_items_with_names_of_their_own(gateway):
    say(gateway, started(), call(0, "add", "{}"), call(1, "add", '{"b'), call(1, "", '":2}'), done(CALLS))
    _, whole = await respond(gateway, tools=TOOLS)
    _, text = await respond(gateway, tools=TOOLS, stream=True)

    for response in (whole, events_of(text)[-1]["response"]):
        assert [item["arguments"] for item in response["output"]] == ["{}", '{"b":2}']
        assert len({item["call_id"] for item in response["output"]}) == 2


async def test_likelihoods_come_with_the_text_they_belong_to(gateway):
    say(
        gateway,
        started(),
        batch(logprobs=[likelihood(b"\xf0\x9f")]),
        batch(text="🙂", logprobs=[likelihood(b"\x99\x82", b"a")]),
        batch(logprobs=[likelihood(b"")]),
        done(),
    )
    fields = {"include": ["message.output_text.logprobs"], "top_logprobs": 1}
    _, whole = await respond(gateway, **fields)
    _, text = await respond(gateway, **fields, stream=True)

    told = whole["output"][0]["content"][0]["logprobs"]
    assert bytes(byte for one in told for byte in one["bytes"]).decode() == "🙂"
    assert len(told) == 3
    events = events_of(text)
    assert [one for event in events if event["type"].endswith("text.delta") for one in event["logprobs"]] == told
    assert events[-1]["response"]["output"][0]["content"][0]["logprobs"] == told


async def test_an_empty_reply_is_an_empty_message(gateway):
    say(gateway, started(), done())
    _, whole = await respond(gateway)
    _, text = await respond(gateway, stream=True)

    for response in (whole, events_of(text)[-1]["response"]):
        assert [part["text"] for part in response["output"][0]["content"]] == [""]


async def test_a_failure_is_a_status_before_the_first_token_and_an_event_after_it(gateway):
    async def early(request):
        yield started()
        raise errors.StageFailed("stage 1 died")

    async def late(request):
        yield started()
        yield tokens("half")
        raise errors.StageFailed("stage 1 died")

    gateway.leader.scripts["tiny"] = early
    status, document = await respond(gateway, stream=True)
    gateway.leader.scripts["tiny"] = late
    _, text = await respond(gateway, stream=True)
    last = events_of(text)[-1]

    assert status == 503
    assert_openai_error(document, code="stage_failed")
    assert last["type"] == "response.failed" and last["response"]["status"] == "failed"
    assert "stage 1 died" in last["response"]["error"]["message"]
    assert last["response"]["output"][0]["content"][0]["text"] == "half"


async def test_a_wait_that_fails_after_it_opened_the_stream_is_told_as_a_response(start_gateway):
    gateway = await start_gateway(keep_alive_s=0.05)

    async def script(request):
        yield started()
        await asyncio.sleep(0.2)
        raise errors.FellowLost("anna is gone")

    gateway.leader.scripts["tiny"] = script
    status, text = await respond(gateway, stream=True)
    events = events_of(text[text.index("event:") :])

    assert status == 200 and text.startswith(": ")
    assert [event["type"] for event in events] == ["response.created", "response.in_progress", "response.failed"]


async def test_what_is_too_long_names_the_input(gateway):
    async def script(request):
        raise errors.ContextTooLong("too long", needed_tokens=4312, budget_tokens=4096)
        yield

    gateway.leader.scripts["tiny"] = script
    status, document = await respond(gateway)

    assert status == 400
    assert_openai_error(document, code="context_length_exceeded", param="input")
