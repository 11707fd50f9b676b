"""Whatever a body holds, the answer is a reply or an error in OpenAI's shape, and never a 500."""

import asyncio
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from swarm_gateway.openai.chat_completions.read import read_chat
from swarm_gateway.openai.completions.read import read_completion
from swarm_gateway.openai.responses.read import read_response
from swarm_gateway.problems import HttpProblem, error_document

from tests.integration.gateway.test_failures import assert_openai_error

FIELDS = [
    "model", "messages", "temperature", "top_p", "top_k", "min_p", "seed", "stop", "max_tokens", "n", "stream",
    "max_completion_tokens", "stream_options", "chat_template_kwargs", "ignore_eos", "tools", "logprobs", "user",
    "response_format", "presence_penalty", "logit_bias", "role", "content", "type", "text", "tool_calls", "echo",
    "tool_call_id", "id", "function", "name", "arguments", "include_usage", "enable_thinking", "tool_choice", "input",
    "parameters", "strict", "json_schema", "schema", "guided_json", "structured_outputs", "prompt", "call_id", "output",
    "reasoning", "reasoning_effort", "instructions", "include", "format", "metadata", "allowed_tools", "mode",
    "top_logprobs", "max_output_tokens", "min_tokens", "summary", "best_of", "suffix", "reasoning_content",
]  # fmt: skip
WORDS = [
    "tiny", "user", "assistant", "tool", "text", "image_url", "", "0.7", "function", "required", "auto", "json_schema",
    "json_object", "message", "function_call", "function_call_output", "reasoning", "input_text", "low", "\ud800",
]  # fmt: skip
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from([*WORDS, 2**63, 2**64, 1e308, -1, 0, 1, 0.01]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=5),
    max_leaves=20,
)
USER = {"role": "user", "content": "hi"}
ADD = {"name": "add", "parameters": {"type": "object"}}
# What is right for each path, and who reads it.
RIGHT = {
    "/v1/chat/completions": {
        "model": "tiny",
        "messages": [USER],
        "tools": [{"type": "function", "function": ADD}],
        "response_format": {"type": "json_object"},
        "logprobs": True,
    },
    "/v1/completions": {"model": "tiny", "prompt": ["a", "b"], "n": 2, "logprobs": 1},
    "/v1/responses": {
        "model": "tiny",
        "input": [USER, {"type": "function_call", "call_id": "c", "name": "add", "arguments": "{}"}],
        "tools": [{"type": "function", **ADD}],
    },
}
READ = {"/v1/chat/completions": read_chat, "/v1/completions": read_completion, "/v1/responses": read_response}


@st.composite
def documents(draw, path: str) -> dict:
    """What is right, with some fields of it, of their insides, or besides, replaced by anything."""
    document = json.loads(json.dumps(RIGHT[path]))
    for _ in range(draw(st.integers(0, 3))):
        place = document
        while draw(st.booleans()) and (inner := [one for one in _inside(place) if isinstance(one, dict | list)]):
            place = draw(st.sampled_from(inner))
        value = draw(VALUES)
        if isinstance(place, list):
            place.insert(draw(st.integers(0, len(place))), value)
        else:
            place[draw(st.sampled_from(sorted(place) or FIELDS) | st.sampled_from(FIELDS))] = value
    return document


def _inside(place: dict | list) -> list:
    return list(place.values() if isinstance(place, dict) else place)


@pytest.mark.parametrize("path", READ)
@settings(max_examples=200, deadline=None)
@given(draws=st.data())
def test_every_body_is_read_or_refused_in_openais_shape(path, draws):
    body = draws.draw(documents(path).map(lambda document: json.dumps(document).encode()) | st.binary(max_size=60))
    try:
        for generation in READ[path](body).generations:
            generation.SerializeToString()
    except HttpProblem as error:
        assert error.problem.status == 400
        assert_openai_error(error_document(error.problem), type="invalid_request_error")


@pytest.mark.parametrize("path", READ)
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(draws=st.data())
async def test_no_body_makes_the_gateway_fail(gateway, path, draws):
    async def ask(document: dict) -> None:
        async with gateway.client.post(gateway.url + path, data=json.dumps(document).encode()) as response:
            text = await response.text()
        assert response.status in (200, 400, 404)
        if response.status != 200:
            assert_openai_error(json.loads(text))

    await asyncio.gather(*map(ask, draws.draw(st.lists(documents(path), min_size=3, max_size=3))))
