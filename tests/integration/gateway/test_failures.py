"""What a client gets when something is wrong: before the reply, in the middle of it, and without a leader."""

import asyncio
import json
import socket

import pytest
from swarm_core import errors
from swarm_core.errors import Reason, RemoteError
from swarm_gateway.problems import problem_of

from tests.integration.gateway.scripted_leader import WAIT_S, started, tokens

EXPECTED = {
    Reason.INTERNAL: 500,
    Reason.BAD_REQUEST: 400,
    Reason.MODEL_NOT_FOUND: 404,
    Reason.MODEL_NOT_READY: 503,
    Reason.SERVABLE_CORRUPT: 409,
    Reason.FELLOW_NOT_FOUND: 404,
    Reason.NO_FELLOW: 503,
    Reason.TOO_FEW_FELLOWS: 409,
    Reason.NOT_ENOUGH_MEMORY: 409,
    Reason.CAPABILITY_MISSING: 409,
    Reason.CONTEXT_TOO_LONG: 400,
    Reason.OVERLOADED: 429,
    Reason.DEADLINE: 504,
    Reason.CANCELLED: 503,
    Reason.STAGE_FAILED: 503,
    Reason.LINK_BROKEN: 503,
    Reason.FELLOW_LOST: 503,
    Reason.STALE_EPOCH: 503,
    Reason.BAD_FRAME: 500,
    Reason.LOAD_FAILED: 409,
    Reason.HASH_MISMATCH: 500,
    Reason.UNAUTHENTICATED: 401,
    Reason.PERMISSION_DENIED: 403,
    Reason.UNAVAILABLE: 503,
    Reason.CONFLICT: 409,
    Reason.DISK: 507,
    Reason.REPLY_NOT_FOUND: 404,
    Reason.SESSION_NOT_KEPT: 503,
}


def assert_openai_error(document: dict, **expected: object) -> None:
    """All four keys, as strings or null, and nothing else."""
    assert set(document) == {"error"}
    error = document["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert isinstance(error["message"], str) and error["message"]
    assert isinstance(error["type"], str)
    assert all(error[key] is None or isinstance(error[key], str) for key in ("param", "code"))
    assert {key: error[key] for key in expected} == expected


def test_no_reason_lacks_a_status():
    assert set(EXPECTED) == set(Reason)
    assert {reason: problem_of(RemoteError(reason, "x")).status for reason in Reason} == EXPECTED


@pytest.mark.parametrize("stream", [False, True])
async def test_every_reason_before_the_first_token_is_a_plain_reply(gateway, stream):
    for reason, expected in EXPECTED.items():

        async def script(request, reason=reason):
            raise RemoteError(reason, "it went wrong", needed_tokens=5, budget_tokens=4)
            yield

        gateway.leader.scripts["tiny"] = script
        status, document, headers = await gateway.chat(stream=stream)

        assert status == expected, reason
        assert_openai_error(document)
        assert headers["x-request-id"]
        assert ("Retry-After" in headers) == (expected in (429, 503)), reason


async def test_an_unknown_model_is_404_and_names_what_exists(gateway):
    status, document, headers = await gateway.chat(model="nope")

    assert status == 404
    assert_openai_error(document, code="model_not_found", param="model", type="invalid_request_error")
    assert "org/tiny, tiny" in document["error"]["message"]
    assert headers["x-should-retry"] == "false"


async def test_a_conversation_too_long_is_400_with_both_numbers(gateway):
    async def script(request):
        raise errors.ContextTooLong("too long", needed_tokens=4312, budget_tokens=4096)
        yield

    gateway.leader.scripts["tiny"] = script
    status, document, _ = await gateway.chat(stream=True)

    assert status == 400
    assert_openai_error(document, code="context_length_exceeded", param="messages")
    assert "4096" in document["error"]["message"] and "4312" in document["error"]["message"]


@pytest.mark.parametrize(("facts", "retry_after"), [({}, "2"), ({"waiting": 9, "retry_after_s": 7}, "7")])
async def test_the_leader_says_when_to_come_back(gateway, facts, retry_after):
    """By what is usual for its reason, or by what it measured: the very facts of a full gate."""

    async def script(request):
        raise errors.Overloaded("9 wait already", **facts)
        yield

    gateway.leader.scripts["tiny"] = script
    status, document, headers = await gateway.chat()

    assert (status, headers["Retry-After"]) == (429, retry_after)
    assert_openai_error(document, code="overloaded", type="rate_limit_error")


async def test_a_failure_after_the_first_token_ends_the_stream_without_done(gateway):
    async def script(request):
        yield started()
        yield tokens("half")
        raise errors.StageFailed("stage 1 on anna died")

    gateway.leader.scripts["tiny"] = script
    status, text, _ = await gateway.chat(stream=True)
    whole_status, document, _ = await gateway.chat()

    assert status == 200
    assert "[DONE]" not in text and "event:" not in text
    assert_openai_error(json.loads(text.split("\n\n")[-2].removeprefix("data: ")), code="stage_failed")
    assert whole_status == 503
    assert_openai_error(document, code="stage_failed")


async def test_a_reply_without_an_end_is_a_failure(gateway):
    async def script(request):
        yield started()
        yield tokens("half")

    gateway.leader.scripts["tiny"] = script
    _, text, _ = await gateway.chat(stream=True)
    status, document, _ = await gateway.chat()

    assert "[DONE]" not in text and '"error"' in text
    assert status == 503
    assert_openai_error(document)


async def test_a_deadline_ends_the_wait(start_gateway):
    gateway = await start_gateway(request_timeout_s=1)

    async def script(request):
        await asyncio.sleep(WAIT_S)
        yield started()

    await gateway.chat()  # the link to the leader is up: the wait for it is not what the deadline ends
    await asyncio.wait_for(gateway.leader.ended.wait(), 5)
    gateway.leader.scripts["tiny"] = script
    gateway.leader.ended.clear()
    status, document, _ = await gateway.chat()

    assert status == 504
    assert_openai_error(document, code="deadline")
    await asyncio.wait_for(gateway.leader.ended.wait(), 5)


async def test_without_a_leader_everything_but_liveness_is_503_at_once(start_gateway):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, not listening: connections are refused
        gateway = await start_gateway(leader_address=f"127.0.0.1:{taken.getsockname()[1]}")
        async with asyncio.timeout(8):
            status, document, headers = await gateway.chat()
            models_status, models = await gateway.get("/v1/models")
            ready_status, ready = await gateway.get("/api/v1/ready")
            alive_status, alive = await gateway.get("/healthz")

    assert (status, models_status, ready_status) == (503, 503, 503)
    assert_openai_error(document, code="unavailable")
    assert_openai_error(models, code="unavailable")
    assert "SWARM_LEADER" in document["error"]["message"]
    assert ready["error"]["code"] == "unavailable"
    assert headers["Retry-After"]
    assert (alive_status, alive["status"]) == (200, "ok")


async def test_a_leader_that_takes_connections_and_says_nothing_is_503_too(start_gateway):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        gateway = await start_gateway(leader_address=f"127.0.0.1:{silent.getsockname()[1]}", api_timeout_s=5)
        async with asyncio.timeout(15):
            models_status, _ = await gateway.get("/v1/models")
            status, document, _ = await gateway.chat(stream=True)

    assert models_status in (503, 504)
    assert status == 503
    assert_openai_error(document, code="unavailable")


async def test_more_requests_than_the_gateway_holds_are_turned_away(start_gateway):
    gateway = await start_gateway(requests_max=1)

    async def script(request):
        yield started()
        await asyncio.sleep(WAIT_S)

    gateway.leader.scripts["tiny"] = script
    first = asyncio.ensure_future(gateway.chat())
    await asyncio.wait_for(gateway.leader.begun.wait(), 5)
    status, document, headers = await gateway.chat()
    first.cancel()

    assert (status, headers["Retry-After"]) == (429, "2")
    assert_openai_error(document, code="overloaded")
    assert (await gateway.get("/healthz"))[0] == 200
