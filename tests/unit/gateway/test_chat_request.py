"""Which chat requests are read, and what the others are told."""

import json

import pytest
from silentswarm.core.v1 import generation_pb2
from silentswarm.core.v1.generation_pb2 import ToolCall
from swarm_gateway.openai.chat_completions.read import read_chat
from swarm_gateway.problems import HttpProblem

USER = {"role": "user", "content": "hi"}
CALL = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a":1}'}}
CALLING = {"role": "assistant", "content": None, "tool_calls": [CALL]}
ANSWER = {"role": "tool", "tool_call_id": "call_1", "content": "2"}


def generation(**fields) -> generation_pb2.Generation:
    """What a request becomes."""
    document = {"model": "m", "messages": [USER], **fields}
    (made,) = read_chat(json.dumps(document).encode()).generations
    return made


def refusal(**fields) -> tuple[str | None, str]:
    """The param and the words of a refused request."""
    with pytest.raises(HttpProblem) as refused:
        generation(**fields)
    assert refused.value.problem.status == 400
    return refused.value.problem.param, refused.value.problem.message


@pytest.mark.parametrize("name", ["temperature", "top_p", "min_p"])
@pytest.mark.parametrize("value", ["0.7", True, -0.1, 2.1, 1e308, [1], {}])
def test_a_number_out_of_range_or_of_another_kind_is_refused_by_name(name, value):
    assert refusal(**{name: value})[0] == name


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("top_k", 1.5),
        ("seed", 2**63),
        ("seed", "1"),
        ("max_tokens", 0),
        ("max_tokens", 2**31),
        ("max_completion_tokens", True),
        ("stream", "true"),
        ("stop", ["a"] * 5),
        ("stop", ""),
        ("stop", [""]),
        ("stop", 3),
        ("n", 9),
        ("n", 0),
        ("seed", 2**64),
        ("top_k", -2),
        ("top_k", 0.01),
        ("top_logprobs", -1),
        ("top_logprobs", 10**6),
        ("top_logprobs", 2),
        ("logit_bias", {"x": 1}),
        ("logit_bias", {"5": 101}),
        ("logit_bias", {"5": True}),
        ("logit_bias", {"05": 1}),
        ("logit_bias", {str(2**32): 1}),
        ("logit_bias", {str(token): 1 for token in range(1025)}),
        ("presence_penalty", 2.1),
        ("frequency_penalty", "1"),
        ("repetition_penalty", 0),
        ("repetition_penalty", 1e308),
        ("reasoning_effort", "most"),
        ("stop", ["x" * 257]),
        ("logprobs", 1),
        ("chat_template_kwargs", "x"),
        ("response_format", {"type": "yaml"}),
        ("response_format", {"type": "json_schema"}),
        ("response_format", {"type": "json_schema", "json_schema": {"name": "a b", "schema": {}}}),
        ("response_format", {"type": "json_schema", "json_schema": {"name": "a"}}),
        ("structured_outputs", {"choice": []}),
        ("structured_outputs", {"regex": ""}),
        ("guided_json", 3),
        ("guided_json", "no json"),
        ("guided_json", '{"a":1,"a":2}'),
        ("guided_grammar", "x" * 70_000),
        ("n", True),
        ("n", "1"),
        ("model", ""),
        ("model", 3),
        ("ignore_eos", 1),
        ("min_tokens", -1),
        ("min_tokens", "1"),
        ("min_tokens", True),
        ("min_tokens", 2**31),
        ("stream_options", 1),
    ],
)
def test_a_wrong_field_is_named(name, value):
    param, message = refusal(**{name: value})

    assert param is not None and param.startswith(name)
    assert message


@pytest.mark.parametrize(
    ("name", "default", "other"),
    [
        ("functions", [], [{"name": "f"}]),
        ("function_call", "auto", {"name": "f"}),
        ("modalities", ["text"], ["text", "audio"]),
        ("audio", None, {"voice": "x"}),
        ("prediction", None, {"type": "content"}),
        ("web_search_options", None, {}),
        ("chat_template", None, "{{ 7 }}"),
        ("continue_final_message", False, True),
        ("use_beam_search", False, True),
        ("stop_token_ids", [], [1]),
        ("best_of", 1, 2),
    ],
)
def test_what_is_not_supported_is_refused_unless_it_asks_for_nothing(name, default, other):
    assert generation(**{name: default}) == generation(**{name: None}) == generation()
    assert refusal(**{name: other}) == (name, f"{name} is not supported")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("presence_penalty", 0),
        ("frequency_penalty", 0.0),
        ("repetition_penalty", 1),
        ("logit_bias", {}),
        ("logit_bias", {"5": 0}),
        ("logprobs", False),
        ("top_logprobs", 0),
        ("tools", []),
        ("tool_choice", "auto"),
        ("tool_choice", "none"),
        ("response_format", {"type": "text"}),
        ("n", 1),
        ("reasoning_effort", "high"),
        ("structured_outputs", {}),
    ],
)
def test_a_field_that_asks_for_nothing_adds_nothing(name, value):
    """So that a ring whose stages lack the feature serves it."""
    assert generation(**{name: value}) == generation(**{name: None}) == generation()


def test_unknown_fields_are_ignored_everywhere():
    assert generation(user="u", store=True, metadata={}, service_tier="auto", prompt_cache_key="k") == generation()
    assert generation(parallel_tool_calls=False) == generation()
    assert generation(messages=[{**USER, "cache_control": {}}]) == generation()


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [{"role": "user", "content": ""}],
        [{"role": "user", "content": None}],
        [{"role": "user", "content": []}],
        [{"role": "user"}],
        [CALLING],
        [USER, CALLING, USER],
        [ANSWER],
        [USER, CALLING, {**ANSWER, "tool_call_id": "call_2"}],
        [{**USER, "tool_calls": [CALL]}, ANSWER],
        [USER, {**CALLING, "tool_calls": [CALL, CALL]}, ANSWER],
    ],
)
def test_messages_that_make_no_conversation_are_refused(messages):
    assert refusal(messages=messages)[0] == "messages"


def test_missing_messages_and_model_are_named():
    for name in ("messages", "model"):
        document = {"model": "m", "messages": [USER]}
        del document[name]
        with pytest.raises(HttpProblem) as refused:
            read_chat(json.dumps(document).encode())
        assert (refused.value.problem.param, refused.value.problem.code) == (name, "missing_required_parameter")


def test_a_wrong_role_and_a_picture_are_named():
    picture = {"type": "image_url", "image_url": {"url": "x"}}

    assert refusal(messages=[{"role": "judge", "content": "x"}])[0] == "messages[0].role"
    param, message = refusal(messages=[USER, {"role": "user", "content": [{"type": "text", "text": "a"}, picture]}])
    assert param == "messages[1].content"
    assert "image_url" in message


def test_parts_become_one_text_and_developer_becomes_system():
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    chat = generation(messages=[{"role": "developer", "content": "s"}, {"role": "user", "content": parts}]).chat

    assert [(message.role, message.content) for message in chat.messages] == [("system", "s"), ("user", "ab")]


def test_calls_and_thoughts_of_the_past_travel_as_they_are():
    thinking = {**CALLING, "reasoning_content": "two numbers"}
    chat = generation(messages=[USER, thinking, ANSWER]).chat

    assert chat.messages[1].tool_calls == [ToolCall(id="call_1", name="add", arguments='{"a":1}')]
    assert (chat.messages[1].content, chat.messages[1].reasoning) == ("", "two numbers")
    assert (chat.messages[2].role, chat.messages[2].content, chat.messages[2].tool_call_id) == ("tool", "2", "call_1")


def test_a_tool_may_have_nothing_to_say():
    assert generation(messages=[USER, CALLING, {**ANSWER, "content": ""}]).chat.messages[2].content == ""


@pytest.mark.parametrize("top_p", [0, 0.0, 1e-300])
def test_top_p_zero_is_greedy(top_p):
    sampling = generation(top_p=top_p, temperature=1.5).sampling

    assert sampling.temperature == 0 and sampling.HasField("temperature")
    assert not sampling.HasField("top_p")


def test_what_is_left_out_stays_absent_for_the_models_own_defaults():
    made = generation(temperature=None, seed=None, stop=None, max_tokens=None)

    assert made.sampling == generation_pb2.Sampling()
    assert not made.HasField("new_tokens_max")
    assert not made.chat.HasField("enable_thinking")


def test_an_integer_may_be_written_with_a_point():
    assert generation(max_tokens=5.0, seed=7.0, n=1.0) == generation(max_tokens=5, seed=7)


def test_zero_is_not_absent():
    sampling = generation(temperature=0, top_k=0, min_p=0, seed=0).sampling

    assert all(sampling.HasField(name) for name in ("temperature", "top_k", "min_p", "seed"))


def test_the_newer_limit_wins():
    assert generation(max_tokens=5).new_tokens_max == 5
    assert generation(max_tokens=5, max_completion_tokens=9).new_tokens_max == 9


def test_the_least_tokens_are_passed_on_and_may_be_none_or_all():
    assert generation(min_tokens=5).new_tokens_min == 5
    assert generation(min_tokens=None).new_tokens_min == generation(min_tokens=0, max_tokens=1).new_tokens_min == 0
    assert generation(min_tokens=5, max_tokens=5).new_tokens_min == 5


def test_more_least_than_most_tokens_is_refused_by_name():
    assert refusal(min_tokens=6, max_tokens=5)[0] == "min_tokens"
    param, message = refusal(min_tokens=6, max_tokens=9, max_completion_tokens=5)

    assert param == "min_tokens"
    assert "6" in message and "5" in message
