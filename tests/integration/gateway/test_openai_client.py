"""The official Python client against the gateway: it parses everything, and raises its own errors."""

import json

import pytest
from silentswarm.core.v1 import generation_pb2
from swarm_core import errors

from tests.integration.gateway.scripted_leader import done, started, tokens
from tests.integration.gateway.test_chat_shapes import CALLS, batch, call, likelihood, say

openai = pytest.importorskip("openai", reason="the openai package is not installed")
QUESTION = [{"role": "user", "content": "hi"}]
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}]


@pytest.fixture(params=["/v1", "/v1/"])
async def client(gateway, request):
    """A client with a base URL as people write it."""
    async with openai.AsyncOpenAI(base_url=gateway.url + request.param, api_key="none", max_retries=0) as made:
        yield made


async def test_it_reads_a_whole_reply(client):
    reply = await client.chat.completions.create(model="tiny", messages=QUESTION)

    assert reply.choices[0].message.content == "Héllo 🙂"
    assert reply.choices[0].finish_reason == "stop"
    assert reply.usage.total_tokens == 10
    assert reply._request_id


async def test_it_reads_a_stream_and_its_counts(client):
    stream = await client.chat.completions.create(
        model="tiny", messages=QUESTION, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]

    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "Héllo 🙂"
    assert chunks[-1].usage.total_tokens == 10


async def test_it_puts_a_streamed_reply_together(client, gateway):
    """Its own accumulator: roles, calls, likelihoods and choices joined by index."""
    say(
        gateway,
        started(),
        batch(reasoning="hm"),
        batch(text="I look", logprobs=[likelihood(b"I look", b"You")]),
        call(0, "add", '{"a":'),
        call(0, "", "1}"),
        call(1, "add", "{}"),
        done(CALLS),
    )
    async with client.chat.completions.stream(
        model="tiny", messages=QUESTION, tools=TOOLS, n=2, logprobs=True, top_logprobs=1
    ) as stream:
        async for _ in stream:
            pass
        reply = await stream.get_final_completion()

    assert [choice.index for choice in reply.choices] == [0, 1]
    for choice in reply.choices:
        assert choice.message.role == "assistant" and choice.message.content == "I look"
        assert [one.function.arguments for one in choice.message.tool_calls] == ['{"a":1}', "{}"]
        assert choice.logprobs.content[0].top_logprobs[0].token == "You"
        assert choice.finish_reason == "tool_calls"
    ids = [one.id for choice in reply.choices for one in choice.message.tool_calls]
    assert len(set(ids)) == 4


async def test_it_carries_a_turn_with_tools_on(client, gateway):
    """What it was told goes back as it is, and the model sees it."""
    say(gateway, started(), batch(reasoning="hm"), call(0, "add", '{"a":1}'), done(CALLS))
    reply = await client.chat.completions.create(model="tiny", messages=QUESTION, tools=TOOLS, tool_choice="required")
    said = reply.choices[0].message
    answer = {"role": "tool", "tool_call_id": said.tool_calls[0].id, "content": "2"}
    await client.chat.completions.create(model="tiny", messages=[*QUESTION, said, answer], tools=TOOLS)

    chat = gateway.leader.asked[-1].generation.chat
    assert [message.role for message in chat.messages] == ["user", "assistant", "tool"]
    assert chat.messages[1].tool_calls[0].arguments == '{"a":1}'
    assert chat.messages[1].reasoning == "hm"
    assert chat.messages[2].tool_call_id == chat.messages[1].tool_calls[0].id


async def test_it_parses_what_was_asked_for_as_json(client, gateway):
    pydantic = pytest.importorskip("pydantic")

    class Sum(pydantic.BaseModel):
        value: int

    say(gateway, started(), tokens('{"value":3}'), done())
    reply = await client.chat.completions.parse(model="tiny", messages=QUESTION, response_format=Sum)
    response = await client.responses.parse(model="tiny", input="1+2", text_format=Sum)

    assert reply.choices[0].message.parsed == response.output_parsed == Sum(value=3)
    for asked in gateway.leader.asked:
        assert asked.generation.constraint.strict
        assert json.loads(asked.generation.constraint.json_schema)["properties"]["value"] == {
            "title": "Value",
            "type": "integer",
        }


async def test_it_reads_plain_completions(client, gateway):
    whole = await client.completions.create(model="tiny", prompt=["a", "b"], echo=True)
    stream = await client.completions.create(model="tiny", prompt="a", stream=True)
    texts = [chunk.choices[0].text async for chunk in stream]

    assert [choice.text for choice in whole.choices] == ["aHéllo 🙂", "bHéllo 🙂"]
    assert "".join(texts) == "Héllo 🙂"


async def test_it_raises_its_own_errors(client, gateway):
    with pytest.raises(openai.NotFoundError) as missing:
        await client.chat.completions.create(model="nope", messages=QUESTION)
    with pytest.raises(openai.BadRequestError) as wrong:
        await client.chat.completions.create(model="tiny", messages=QUESTION, temperature=9)
    with pytest.raises(openai.NotFoundError) as absent:
        await client.embeddings.create(model="tiny", input="x")

    async def script(request):
        yield started()
        yield tokens("half")
        raise errors.StageFailed("stage 1 died")

    gateway.leader.scripts["tiny"] = script
    stream = await client.chat.completions.create(model="tiny", messages=QUESTION, stream=True)
    with pytest.raises(openai.APIError, match="stage 1 died"):
        async for _ in stream:
            pass

    assert missing.value.code == "model_not_found"
    assert wrong.value.param == "temperature"
    assert "/v1" in absent.value.message


async def test_it_tries_again_what_may_pass_and_leaves_what_will_not(gateway):
    """O49: its own retries, which wait as Retry-After says."""
    refusals = [errors.Overloaded(f"{count} wait", retry_after_s=1) for count in (8, 9)]

    async def script(request):
        if refusals:
            raise refusals.pop()
        yield started()
        yield tokens("at last")
        yield done()

    async def conflict(request):
        raise errors.CapabilityMissing("anna draws no shapes")
        yield

    gateway.leader.scripts["tiny"] = script
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="none", max_retries=2) as client:
        reply = await client.chat.completions.create(model="tiny", messages=QUESTION)
        before = len(gateway.leader.asked)
        gateway.leader.scripts["tiny"] = conflict
        with pytest.raises(openai.ConflictError):
            await client.chat.completions.create(model="tiny", messages=QUESTION)

    assert reply.choices[0].message.content == "at last"
    assert (before, len(gateway.leader.asked)) == (3, 4)


async def test_a_client_that_adds_up_every_usage_counts_once(client, gateway):
    """Field report 13."""
    for options in ({}, {"stream_options": {"include_usage": True}}):
        stream = await client.chat.completions.create(model="tiny", messages=QUESTION, stream=True, **options)
        usages = [chunk.usage async for chunk in stream if chunk.usage]
        assert sum(usage.total_tokens for usage in usages) == (10 if options else 0)


async def test_it_lists_and_shows_models(client):
    models = await client.models.list()

    assert [model.id for model in models.data] == ["tiny", "org/tiny"]
    assert (await client.models.retrieve("org/tiny")).id == "org/tiny"


async def test_its_extra_body_reaches_the_leader(client, gateway):
    extra = {"min_tokens": 7, "ignore_eos": True, "guided_choice": ["a", "b"], "repetition_penalty": 1.5}
    await client.chat.completions.create(model="tiny", messages=QUESTION, max_tokens=9, extra_body=extra)
    with pytest.raises(openai.BadRequestError) as wrong:
        await client.chat.completions.create(
            model="tiny", messages=QUESTION, max_tokens=9, extra_body={"min_tokens": 10}
        )

    asked = gateway.leader.asked[0].generation
    assert (asked.new_tokens_min, asked.new_tokens_max, asked.ignore_eos) == (7, 9, True)
    assert asked.constraint == generation_pb2.Constraint(choices=generation_pb2.Constraint.Choices(texts=["a", "b"]))
    assert asked.sampling.repetition_penalty == 1.5
    assert wrong.value.param == "min_tokens"


async def test_its_idempotency_key_makes_one_generation(client, gateway):
    headers = {"Idempotency-Key": "k-1"}
    replies = [
        await client.chat.completions.create(model="tiny", messages=QUESTION, extra_headers=headers) for _ in range(3)
    ]

    assert len({reply.id for reply in replies}) == len(gateway.leader.asked) == 1


async def test_its_key_is_the_caller_and_never_travels(gateway):
    callers = []
    for key in ("sk-anna", "sk-anna", "sk-otto"):
        async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1/", api_key=key, max_retries=0) as made:
            await made.chat.completions.create(model="tiny", messages=QUESTION, user=f"user-{len(callers)}")
        callers.append(gateway.leader.asked[-1].generation.caller)

    assert callers[0] == callers[1] != callers[2]
    assert all(b"sk-" not in asked.SerializeToString() for asked in gateway.leader.asked)
