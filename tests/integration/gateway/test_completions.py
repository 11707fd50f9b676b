"""/v1/completions over real sockets: prompts, echo, likelihoods, streams."""

import json
from typing import Any

from swarm_core import errors

from tests.integration.gateway.scripted_leader import TIMING, done, started, tokens
from tests.integration.gateway.test_chat_shapes import batch, chunks_of, likelihood, say
from tests.integration.gateway.test_failures import assert_openai_error


async def complete(gateway, **fields: Any) -> tuple[int, Any]:
    """A completion: status, and JSON or the text of a stream."""
    body = {"model": "tiny", "prompt": "Once", **fields}
    async with gateway.client.post(gateway.url + "/v1/completions", json=body) as response:
        text = await response.text()
        return response.status, json.loads(text) if response.content_type == "application/json" else text


async def test_a_whole_reply_has_the_shape_clients_rely_on(gateway):
    status, reply = await complete(gateway)

    assert status == 200
    assert reply["id"].startswith("cmpl-") and isinstance(reply["created"], int)
    assert (reply["object"], reply["model"]) == ("text_completion", "tiny")
    assert reply["choices"] == [{"index": 0, "text": "Héllo 🙂", "logprobs": None, "finish_reason": "stop"}]
    assert reply["usage"] == {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    assert reply["swarm"]["timing"]["route"] == TIMING.route


async def test_prompts_have_choices_and_indexes_of_their_own_and_are_counted_once_each(gateway):
    async def script(request):
        yield started()
        yield tokens(f"<{request.generation.prompt}>")
        yield done(completion_tokens=2)

    gateway.leader.scripts["tiny"] = script
    fields = {"prompt": ["a", "b"], "n": 2, "echo": True}
    _, whole = await complete(gateway, **fields)
    _, text = await complete(gateway, **fields, stream=True, stream_options={"include_usage": True})

    assert [choice["text"] for choice in whole["choices"]] == ["a<a>", "a<a>", "b<b>", "b<b>"]
    assert [choice["index"] for choice in whole["choices"]] == [0, 1, 2, 3]
    assert whole["usage"] == {"prompt_tokens": 14, "completion_tokens": 8, "total_tokens": 22}
    chunks = chunks_of(text)
    for at, choice in enumerate(whole["choices"]):
        pieces = [one for chunk in chunks for one in chunk["choices"] if one["index"] == at]
        assert "".join(one["text"] for one in pieces) == choice["text"]
        assert [one["finish_reason"] for one in pieces][-1] == "stop"
        assert not any(one["finish_reason"] for one in pieces[:-1])
    assert chunks[-1]["usage"] == whole["usage"]
    assert {chunk["object"] for chunk in chunks} == {"text_completion"}


async def test_likelihoods_stand_side_by_side_streamed_or_not(gateway):
    say(
        gateway,
        started(),
        batch(text="Hé", logprobs=[likelihood(b"H", b"H", b"J"), likelihood("é".encode())]),
        batch(text="llo", logprobs=[likelihood(b"llo")]),
        done(),
    )
    _, whole = await complete(gateway, logprobs=2)
    _, text = await complete(gateway, logprobs=2, stream=True)

    told = whole["choices"][0]["logprobs"]
    assert (told["tokens"], told["text_offset"]) == (["H", "é", "llo"], [0, 1, 2])
    assert told["top_logprobs"][0] == {"H": -1, "J": -1}
    streamed = [chunk["choices"][0]["logprobs"] for chunk in chunks_of(text)]
    joined = {key: [one for piece in streamed if piece for one in piece[key]] for key in told}
    assert joined == told


async def test_token_ids_go_to_the_leader_as_they_are(gateway):
    await complete(gateway, prompt=[1, 2, 3])

    assert list(gateway.leader.asked[0].generation.prompt_ids.ids) == [1, 2, 3]


async def test_what_is_too_long_names_the_prompt(gateway):
    async def script(request):
        raise errors.ContextTooLong("too long", needed_tokens=4312, budget_tokens=4096)
        yield

    gateway.leader.scripts["tiny"] = script
    status, document = await complete(gateway, stream=True)

    assert status == 400
    assert_openai_error(document, code="context_length_exceeded", param="prompt")


async def test_a_failure_after_the_first_token_ends_the_stream_without_done(gateway):
    async def script(request):
        yield started()
        yield tokens("half")
        raise errors.StageFailed("stage 1 died")

    gateway.leader.scripts["tiny"] = script
    status, text = await complete(gateway, stream=True)

    assert status == 200 and "[DONE]" not in text
    assert_openai_error(json.loads(text.split("\n\n")[-2].removeprefix("data: ")), code="stage_failed")
