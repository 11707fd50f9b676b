"""Which requests for a response are read, what conversation their items make, and what the others are told."""

import json

import pytest
from silentswarm.core.v1 import generation_pb2
from silentswarm.core.v1.generation_pb2 import ChatMessage, Constraint, Tool, ToolCall, ToolChoice
from swarm_gateway.openai.responses.read import read_response
from swarm_gateway.problems import HttpProblem

CALL = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "add", "arguments": '{"a":1}'}
OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "2"}
ADD = {"type": "function", "name": "add", "parameters": {"type": "object"}, "strict": True}


def generation(**fields) -> generation_pb2.Generation:
    """What a request becomes."""
    (made,) = read_response(json.dumps({"model": "m", "input": "hi", **fields}).encode()).generations
    return made


def refusal(**fields) -> str | None:
    """The param of a refused request."""
    with pytest.raises(HttpProblem) as refused:
        generation(**fields)
    assert refused.value.problem.status == 400
    return refused.value.problem.param


def test_a_text_is_what_the_user_says_and_instructions_come_first():
    assert list(generation(instructions="be brief").chat.messages) == [
        ChatMessage(role="system", content="be brief"),
        ChatMessage(role="user", content="hi"),
    ]


def test_items_in_a_row_are_one_message_of_the_assistant():
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": "1+"}, {"type": "input_text", "text": "1?"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "add them"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look"}]},
        CALL,
        {**CALL, "call_id": "call_2"},
        OUTPUT,
        {**OUTPUT, "call_id": "call_2", "output": [{"type": "input_text", "text": "2"}]},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "so"}], "encrypted_content": "x"},
        {"role": "assistant", "content": "2"},
        {"role": "developer", "content": "go on"},
    ]
    add = ToolCall(id="call_1", name="add", arguments='{"a":1}')
    twice = ToolCall(id="call_2", name="add", arguments='{"a":1}')

    assert list(generation(input=items).chat.messages) == [
        ChatMessage(role="user", content="1+1?"),
        ChatMessage(role="assistant", content="I look", reasoning="add them", tool_calls=[add, twice]),
        ChatMessage(role="tool", content="2", tool_call_id="call_1"),
        ChatMessage(role="tool", content="2", tool_call_id="call_2"),
        ChatMessage(role="assistant", content="2", reasoning="so"),
        ChatMessage(role="system", content="go on"),
    ]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": []}, "input"),
        ({"input": ""}, "input"),
        ({"input": 5}, "input"),
        ({"input": ["x"]}, "input[0]"),
        ({"input": [{}]}, "input[0].type"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0].type"),
        ({"input": [{"type": "computer_call"}]}, "input[0].type"),
        ({"input": [{"role": "judge", "content": "x"}]}, "input[0].role"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content"),
        ({"input": [{"type": "reasoning", "summary": []}]}, "input"),
        ({"input": [CALL]}, "input"),
        ({"input": [OUTPUT]}, "input"),
        ({"input": [{**CALL, "arguments": {}}]}, "input[0].arguments"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"background": True}, "background"),
        ({"truncation": "auto"}, "truncation"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"max_tokens": 5}, "max_tokens"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"n": 2}, "n"),
        ({"temperature": 2.5}, "temperature"),
        ({"top_logprobs": 21}, "top_logprobs"),
        ({"tools": [{"type": 5}]}, "tools[0].type"),
        ({"tools": [{"type": "web_search"}], "tool_choice": "required"}, "tool_choice"),
        ({"tools": [{**ADD, "name": "a b"}]}, "tools[0].name"),
        ({"tools": [ADD, ADD]}, "tools[1]"),
        ({"tools": [ADD], "tool_choice": {"type": "function", "name": "sub"}}, "tool_choice"),
        ({"tools": [ADD], "tool_choice": {"type": "web_search"}}, "tool_choice.type"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"text": {"format": {"type": "json_schema", "name": "x"}}}, "text.format.schema"),
        ({"text": {"format": {"type": "yaml"}}}, "text.format.type"),
        ({"reasoning": {"effort": "most"}}, "reasoning.effort"),
        ({"metadata": {"a": 1}}, "metadata.a"),
        ({"min_tokens": 9, "max_output_tokens": 5}, "min_tokens"),
    ],
)
def test_what_cannot_be_is_named(fields, param):
    assert refusal(**fields) == param


def test_values_that_ask_for_nothing_are_let_pass():
    """What coding agents send with every request."""
    asked = generation(
        store=True,
        include=["reasoning.encrypted_content"],
        reasoning={"effort": "medium", "summary": "auto"},
        background=False,
        truncation="disabled",
        prompt_cache_key="k",
        service_tier="auto",
        text={"verbosity": "low"},
        metadata={"a": "b"},
        user="u",
        max_tool_calls=3,
    )

    assert asked == generation()


def test_tools_that_are_run_elsewhere_are_left_out():
    """Offered, not asked for: coding agents send searches and groups of tools with every request."""
    others = [{"type": "web_search"}, {"type": "namespace", "name": "agents", "tools": []}, {"type": "custom"}]

    assert generation(tools=[*others, ADD]) == generation(tools=[ADD])
    assert generation(tools=others) == generation()


def test_the_rest_becomes_what_chat_makes_of_it():
    asked = generation(
        max_output_tokens=9,
        stop="END",
        temperature=0.5,
        top_p=0,
        tools=[ADD],
        tool_choice={"type": "function", "name": "add"},
        parallel_tool_calls=False,
        text={"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": True}},
        reasoning={"effort": "none"},
        include=["message.output_text.logprobs"],
        top_logprobs=3,
    )

    assert asked.new_tokens_max == 9
    assert list(asked.stop) == ["END"]
    assert asked.sampling.temperature == 0 and asked.sampling.top_logprobs == 3
    assert list(asked.chat.tools) == [Tool(name="add", parameters='{"type":"object"}', strict=True)]
    assert asked.chat.tool_choice == ToolChoice(mode=generation_pb2.TOOL_MODE_REQUIRED, name="add")
    assert asked.chat.HasField("parallel_tool_calls") and asked.chat.HasField("enable_thinking")
    assert asked.constraint == Constraint(json_schema='{"type":"object"}', strict=True)


def test_only_allowed_tools_are_told_to_the_model():
    only = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "sub"}]}
    chat = generation(tools=[ADD, {**ADD, "name": "sub"}], tool_choice=only).chat

    assert [tool.name for tool in chat.tools] == ["sub"]
    assert chat.tool_choice.mode == generation_pb2.TOOL_MODE_REQUIRED
