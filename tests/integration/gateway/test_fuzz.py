"""Whatever a body holds, the answer is a reply or an error in OpenAI's shape, and never a 500."""

import asyncio
import json

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from swarm_gateway.openai.chat_completions.request import generation_of, parse_chat_request
from swarm_gateway.problems import HttpProblem, error_document

from tests.integration.gateway.test_failures import assert_openai_error

FIELDS = [
    "model", "messages", "temperature", "top_p", "top_k", "min_p", "seed", "stop", "max_tokens", "n", "stream",
    "max_completion_tokens", "stream_options", "chat_template_kwargs", "ignore_eos", "tools", "logprobs", "user",
    "response_format", "presence_penalty", "logit_bias", "role", "content", "type", "text", "tool_calls",
    "tool_call_id", "id", "function", "name", "arguments", "include_usage", "enable_thinking",
]  # fmt: skip
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["tiny", "user", "assistant", "tool", "text", "image_url", "", "0.7"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=5),
    max_leaves=20,
)
MESSAGES = st.lists(st.fixed_dictionaries({"role": st.sampled_from(["user", "system", "tool"]), "content": VALUES}))
DOCUMENTS = st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=6).flatmap(
    lambda base: st.one_of(
        st.just(base),
        st.just({"model": "tiny", "messages": [{"role": "user", "content": "hi"}], **base}),
        MESSAGES.map(lambda messages: {"model": "tiny", **base, "messages": messages}),
    )
)


@settings(max_examples=200, deadline=None)
@given(DOCUMENTS.map(lambda document: json.dumps(document).encode()) | st.binary(max_size=60))
def test_every_body_is_read_or_refused_in_openais_shape(body):
    try:
        generation_of(parse_chat_request(body)).SerializeToString()
    except HttpProblem as error:
        assert error.problem.status == 400
        assert_openai_error(error_document(error.problem), type="invalid_request_error")


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(bodies=st.lists(DOCUMENTS.map(lambda document: json.dumps(document).encode()), min_size=3, max_size=3))
async def test_no_body_makes_the_gateway_fail(gateway, bodies):
    async def ask(body: bytes) -> None:
        async with gateway.client.post(gateway.url + "/v1/chat/completions", data=body) as response:
            text = await response.text()
        assert response.status in (200, 400, 404)
        if response.status != 200:
            assert_openai_error(json.loads(text))

    await asyncio.gather(*map(ask, bodies))
