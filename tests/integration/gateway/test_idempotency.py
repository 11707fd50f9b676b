"""Idempotency-Key: one generation for each caller and key, whoever asks again and however readers leave."""

import asyncio
import json
from collections.abc import Mapping

import pytest

from tests.integration.gateway.scripted_leader import WAIT_S, done, started, tokens
from tests.integration.gateway.test_failures import assert_openai_error

PATH = "/v1/chat/completions"


async def ask(
    gateway, key: str | None = "k-1", authorization: str = "", **fields
) -> tuple[int, str, Mapping[str, str]]:
    """A chat with a key: status, text, headers."""
    body = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], **fields}
    headers = {"Idempotency-Key": key} if key is not None else {}
    if authorization:
        headers["Authorization"] = authorization
    async with gateway.client.post(gateway.url + PATH, json=body, headers=headers) as response:
        return response.status, await response.text(), response.headers


def waits(go_on: asyncio.Event):
    """A reply that says half, waits until it may go on, and says the rest."""

    async def script(request):
        yield started()
        yield tokens("half ")
        async with asyncio.timeout(WAIT_S):
            await go_on.wait()
        yield tokens("whole")
        yield done()

    return script


@pytest.mark.parametrize("stream", [False, True])
async def test_asked_again_it_is_the_same_reply_from_its_beginning(gateway, stream):
    first = await ask(gateway, stream=stream)
    again = await ask(gateway, stream=stream)

    assert len(gateway.leader.asked) == 1
    assert first[:2] == again[:2]
    assert "Idempotent-Replayed" not in first[2] and again[2]["Idempotent-Replayed"] == "true"
    assert first[2]["x-request-id"] != again[2]["x-request-id"]


@pytest.mark.parametrize("stream", [False, True])
async def test_asked_while_it_runs_it_is_one_generation(gateway, stream):
    go_on = asyncio.Event()
    gateway.leader.scripts["tiny"] = waits(go_on)
    asking = [asyncio.create_task(ask(gateway, stream=stream)) for _ in range(5)]
    await asyncio.wait_for(gateway.leader.begun.wait(), 5)
    go_on.set()
    replies = await asyncio.gather(*asking)

    assert len(gateway.leader.asked) == 1
    assert len({text for _, text, _ in replies}) == 1
    assert "whole" in replies[0][1]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_tries_again_after_its_own_timeout_gets_the_reply_it_began(gateway, stream):
    """F38, field report 10: the first reader leaves, the generation goes on, the next one reads it from the start."""
    go_on = asyncio.Event()
    gateway.leader.scripts["tiny"] = waits(go_on)
    for _ in range(3):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await ask(gateway, stream=stream)
    assert not gateway.leader.ended.is_set()
    go_on.set()
    status, text, _ = await ask(gateway, stream=stream)

    assert status == 200 and "half" in text and "whole" in text
    assert len(gateway.leader.asked) == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_without_a_key_what_a_client_gave_up_is_cancelled_every_time(gateway, stream):
    """Field report 10: five given up, none left running."""
    gateway.leader.scripts["tiny"] = waits(asyncio.Event())
    for _ in range(5):
        gateway.leader.ended.clear()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await ask(gateway, key=None, stream=stream)
        await asyncio.wait_for(gateway.leader.ended.wait(), 2)

    assert len(gateway.leader.asked) == 5


async def test_another_request_with_the_same_key_is_409(gateway):
    await ask(gateway)
    for fields in ({"temperature": 0.5}, {"stream": True}):
        status, text, headers = await ask(gateway, **fields)
        assert status == 409 and headers["x-should-retry"] == "false"
        assert_openai_error(json.loads(text), code="idempotency_key_reused")

    assert len(gateway.leader.asked) == 1


async def test_a_key_is_its_callers_alone(gateway):
    _, anna, _ = await ask(gateway, authorization="Bearer sk-swarm-anna")
    _, otto, headers = await ask(gateway, authorization="Bearer sk-swarm-otto")

    assert json.loads(anna)["id"] != json.loads(otto)["id"]
    assert "Idempotent-Replayed" not in headers


async def test_what_failed_is_not_kept(gateway):
    good = gateway.leader.scripts.pop("tiny")
    missing, _, _ = await ask(gateway)
    gateway.leader.scripts["tiny"] = good
    status, _, headers = await ask(gateway)

    assert (missing, status) == (404, 200)
    assert "Idempotent-Replayed" not in headers


@pytest.mark.parametrize("key", ["", "é", "x" * 256, " "])
async def test_a_key_that_is_none_is_400(gateway, key):
    status, text, _ = await ask(gateway, key=key)

    assert status == 400
    assert_openai_error(json.loads(text), code="invalid_value")
