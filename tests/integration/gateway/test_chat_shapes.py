"""Chat replies that are more than text: choices, tool calls, reasoning, log-probabilities; whole and streamed."""

import asyncio
import json
from collections.abc import Sequence

import pytest
from silentswarm.core.v1 import generation_pb2
from swarm_core import errors

from tests.integration.gateway.scripted_leader import WAIT_S, Event, done, started, tokens
from tests.integration.gateway.test_failures import assert_openai_error

Batch = Event.TokenBatch
CALLS = generation_pb2.FINISH_REASON_TOOL_CALLS
TOOLS = [{"type": "function", "function": {"name": name}} for name in ("add", "see")]


def batch(**fields) -> Event:
    """One batch of more than text."""
    return Event(sequence=2, tokens=Batch(ids=[1], **fields))


def call(index: int, name: str = "", arguments: str = "") -> Event:
    """A piece of a call."""
    return batch(tool_calls=[Event.ToolCallDelta(index=index, name=name, arguments=arguments)])


def likelihood(token: bytes, *others: bytes) -> Event.TokenLogprob:
    """How likely a token was."""
    return Event.TokenLogprob(
        logprob=-0.5, token=token, top=[Event.Alternative(id=1, logprob=-1, token=other) for other in others]
    )


def say(gateway, *events: Event) -> None:
    """What every reply is from now on."""

    async def script(request):
        for event in events:
            yield event

    gateway.leader.scripts["tiny"] = script


def chunks_of(text: str) -> list[dict]:
    """The chunks of a stream, which must end well."""
    *events, end, rest = text.split("\n\n")
    assert (end, rest) == ("data: [DONE]", "")
    return [json.loads(event.removeprefix("data: ")) for event in events]


def deltas_of(chunks: Sequence[dict], choice: int = 0) -> list[dict]:
    """The deltas of one choice."""
    return [one["delta"] for chunk in chunks for one in chunk["choices"] if one["index"] == choice]


async def test_calls_of_tools_are_told_once_each_and_joined_by_index(gateway):
    """Field reports 15, 16: two parallel calls stay two, one call stays one."""
    say(
        gateway,
        started(),
        call(0, "add", '{"a":'),
        call(0, "", "1}"),
        call(1, "see"),
        call(1, "", "{}"),
        done(CALLS),
    )
    _, whole, _ = await gateway.chat(tools=TOOLS)
    _, text, _ = await gateway.chat(tools=TOOLS, stream=True)

    message = whole["choices"][0]["message"]
    assert message["content"] is None
    assert [one["function"] for one in message["tool_calls"]] == [
        {"name": "add", "arguments": '{"a":1}'},
        {"name": "see", "arguments": "{}"},
    ]
    assert whole["choices"][0]["finish_reason"] == "tool_calls"
    ids = [one["id"] for one in message["tool_calls"]]
    assert len(set(ids)) == 2 and all(one.startswith("call_") for one in ids)

    chunks = chunks_of(text)
    pieces = [one for delta in deltas_of(chunks) for one in delta.get("tool_calls", ())]
    assert [one["index"] for one in pieces] == [0, 0, 1, 1]
    assert [set(one) for one in pieces] == [{"index", "id", "type", "function"}, {"index", "function"}] * 2
    assert [one["function"].get("name") for one in pieces] == ["add", None, "see", None]
    assert [one["function"]["arguments"] for one in pieces] == ['{"a":', "1}", "", "{}"]
    assert chunks[-1]["choices"][0] == {"index": 0, "delta": {}, "logprobs": None, "finish_reason": "tool_calls"}


async def test_reasoning_is_apart_from_the_answer(gateway):
    ended = done()
    ended.done.reasoning_tokens = 2
    say(gateway, started(), batch(reasoning="hm, "), batch(reasoning="yes", text="No"), tokens("."), ended)
    _, whole, _ = await gateway.chat()
    _, text, _ = await gateway.chat(stream=True)

    message = whole["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("hm, yes", "No.")
    assert whole["usage"]["completion_tokens_details"] == {"reasoning_tokens": 2}
    assert deltas_of(chunks_of(text)) == [
        {"role": "assistant", "content": ""},
        {"reasoning_content": "hm, "},
        {"reasoning_content": "yes"},
        {"content": "No"},
        {"content": "."},
        {},
    ]


async def test_every_token_has_its_likelihood_and_their_bytes_are_the_text(gateway):
    """O23: also where a character spans tokens, whole and streamed."""
    say(
        gateway,
        started(),
        batch(text="H", logprobs=[likelihood(b"H", b"H", b"J")]),
        batch(logprobs=[likelihood(b"\xf0\x9f")]),
        batch(text="🙂", logprobs=[likelihood(b"\x99\x82")]),
        batch(logprobs=[likelihood(b"")]),
        done(completion_tokens=4),
    )
    _, whole, _ = await gateway.chat(logprobs=True, top_logprobs=2)
    _, text, _ = await gateway.chat(logprobs=True, top_logprobs=2, stream=True)

    entries = whole["choices"][0]["logprobs"]["content"]
    assert len(entries) == whole["usage"]["completion_tokens"] == 4
    assert bytes(byte for entry in entries for byte in entry["bytes"]).decode() == "H🙂"
    assert [one["token"] for one in entries[0]["top_logprobs"]] == ["H", "J"]
    chunks = chunks_of(text)
    assert [
        entry for chunk in chunks for entry in (chunk["choices"][0]["logprobs"] or {"content": ()})["content"]
    ] == entries
    assert "".join(delta.get("content", "") for delta in deltas_of(chunks)) == "H🙂"
    assert "\ufffd" not in text


async def test_choices_interleave_under_their_own_index_and_end_once_each(gateway):
    """O38: the index is the choice's, and each choice has its role and its finish."""

    async def script(request):
        which = request.generation.sampling.seed
        yield started()
        for word in ("a", "b", "c"):
            yield tokens(f"{word}{which} ")
            await asyncio.sleep(0.01)
        yield done(completion_tokens=5)

    gateway.leader.scripts["tiny"] = script
    _, text, _ = await gateway.chat(n=3, seed=1, stream=True, stream_options={"include_usage": True})
    asked = {one.request_id: one.generation.sampling.seed for one in gateway.leader.asked}
    _, whole, _ = await gateway.chat(n=3, seed=1)
    _, alone, _ = await gateway.chat(seed=1)

    chunks = chunks_of(text)
    assert len(asked) == len(set(asked.values())) == 3
    texts = ["".join(delta.get("content", "") for delta in deltas_of(chunks, at)) for at in range(3)]
    assert texts == [choice["message"]["content"] for choice in whole["choices"]]
    assert texts[0] == alone["choices"][0]["message"]["content"]
    for at in range(3):
        deltas = deltas_of(chunks, at)
        assert [delta.get("role") for delta in deltas] == ["assistant"] + [None] * (len(deltas) - 1)
        ends = [one["finish_reason"] for chunk in chunks for one in chunk["choices"] if one["index"] == at]
        assert ends == [None] * (len(ends) - 1) + ["stop"]
    assert chunks[-1]["usage"] == whole["usage"]
    assert whole["usage"] == {"prompt_tokens": 7, "completion_tokens": 15, "total_tokens": 22}
    assert [choice["index"] for choice in whole["choices"]] == [0, 1, 2]
    assert len(whole["swarm"]["timings"]) == 3


@pytest.mark.parametrize("stream", [False, True])
async def test_a_choice_that_fails_fails_the_request_and_ends_the_others(gateway, stream):
    async def script(request):
        if request.request_id.endswith("-1"):
            raise errors.StageFailed("stage 1 died")
        yield started()
        await asyncio.sleep(WAIT_S)

    gateway.leader.scripts["tiny"] = script
    status, document, headers = await gateway.chat(n=2, stream=stream)

    assert status == 503 and headers["Retry-After"]
    assert_openai_error(document, code="stage_failed")
    await asyncio.wait_for(gateway.leader.ended.wait(), 5)


async def test_a_stage_that_dies_before_the_first_token_is_a_plain_503(gateway):
    """O41: also when the reply was admitted already."""

    async def script(request):
        yield started()
        raise errors.StageFailed("stage 1 died in the prompt")

    gateway.leader.scripts["tiny"] = script
    status, document, headers = await gateway.chat(stream=True)

    assert status == 503 and headers["Retry-After"]
    assert_openai_error(document, code="stage_failed")


async def test_what_the_swarm_calls_otherwise_is_told_in_openais_words(gateway):
    async def script(request):
        raise errors.BadRequest("it cannot be compiled", field=request.generation.stop[0])
        yield

    gateway.leader.scripts["tiny"] = script
    told = {}
    for field, shape in (
        ("constraint.json_schema", {"response_format": {"type": "json_object"}}),
        ("constraint", {"guided_regex": "a"}),
        ("constraint.regex", {"structured_outputs": {"regex": "a"}}),
        ("new_tokens_max", {}),
        ("tools[3].parameters", {}),
    ):
        status, document, _ = await gateway.chat(stop=field, stream=True, **shape)
        assert status == 400
        told[field] = document["error"]["param"]

    assert list(told.values()) == [
        "response_format",
        "guided_regex",
        "structured_outputs.regex",
        "max_tokens",
        "tools[3].parameters",
    ]


async def test_a_regex_may_be_as_long_as_a_stage_takes_and_no_longer(gateway):
    longest, beyond = "a" * 16_384, "a" * 16_385
    shapes = {"guided_regex": longest}, {"guided_regex": beyond}
    answers = [await gateway.chat(**shape) for shape in shapes]

    assert [status for status, *_ in answers] == [200, 400]
    assert_openai_error(answers[1][1], param="guided_regex")
