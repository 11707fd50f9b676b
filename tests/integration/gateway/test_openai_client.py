"""The official Python client against the gateway."""

import pytest
from swarm_core import errors

from tests.integration.gateway.scripted_leader import started, tokens

openai = pytest.importorskip("openai", reason="the openai package is not installed")


@pytest.fixture
async def client(gateway):
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1/", api_key="none", max_retries=0) as made:
        yield made


QUESTION = [{"role": "user", "content": "hi"}]


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


async def test_it_raises_its_own_errors(client, gateway):
    with pytest.raises(openai.NotFoundError) as missing:
        await client.chat.completions.create(model="nope", messages=QUESTION)
    with pytest.raises(openai.BadRequestError) as wrong:
        await client.chat.completions.create(model="tiny", messages=QUESTION, temperature=9)

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


async def test_it_lists_and_shows_models(client):
    models = await client.models.list()

    assert [model.id for model in models.data] == ["tiny", "org/tiny"]
    assert (await client.models.retrieve("org/tiny")).id == "org/tiny"


async def test_its_extra_body_reaches_the_leader(client, gateway):
    await client.chat.completions.create(
        model="tiny", messages=QUESTION, max_tokens=9, extra_body={"min_tokens": 7, "ignore_eos": True}
    )
    with pytest.raises(openai.BadRequestError) as wrong:
        await client.chat.completions.create(
            model="tiny", messages=QUESTION, max_tokens=9, extra_body={"min_tokens": 10}
        )

    asked = gateway.leader.asked[0].generation
    assert (asked.new_tokens_min, asked.new_tokens_max, asked.ignore_eos) == (7, 9, True)
    assert wrong.value.param == "min_tokens"


async def test_its_key_is_the_caller_and_never_travels(gateway):
    callers = []
    for key in ("sk-anna", "sk-anna", "sk-otto"):
        async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1/", api_key=key, max_retries=0) as made:
            await made.chat.completions.create(model="tiny", messages=QUESTION, user=f"user-{len(callers)}")
        callers.append(gateway.leader.asked[-1].generation.caller)

    assert callers[0] == callers[1] != callers[2]
    assert all(b"sk-" not in asked.SerializeToString() for asked in gateway.leader.asked)
