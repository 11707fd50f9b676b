"""What the richer fields of a chat request become: shapes, tools, choices, biases."""

import json

import pytest
from silentswarm.core.v1 import generation_pb2
from silentswarm.core.v1.generation_pb2 import Constraint, Tool, ToolChoice
from swarm_gateway.openai.chat_completions.read import read_chat
from swarm_gateway.problems import HttpProblem

USER = {"role": "user", "content": "hi"}
SCHEMA = {"type": "object", "properties": {"b": {"type": "string"}, "a": {"type": "number"}}}
SCHEMA_TEXT = json.dumps(SCHEMA, separators=(",", ":"))
ADD = {"type": "function", "function": {"name": "add", "description": "adds", "parameters": SCHEMA, "strict": True}}
SEE = {"type": "function", "function": {"name": "see"}}


def generations(**fields) -> tuple[generation_pb2.Generation, ...]:
    """What a request asks for, choice by choice."""
    return read_chat(json.dumps({"model": "m", "messages": [USER], **fields}).encode()).generations


def refusal(**fields) -> str | None:
    """The param of a refused request."""
    with pytest.raises(HttpProblem) as refused:
        generations(**fields)
    assert refused.value.problem.status == 400
    return refused.value.problem.param


@pytest.mark.parametrize(
    ("fields", "made"),
    [
        ({"response_format": {"type": "json_object"}}, Constraint(json_object=Constraint.JsonObject())),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "n", "schema": SCHEMA, "strict": True},
                }
            },
            Constraint(json_schema=SCHEMA_TEXT, strict=True),
        ),
        ({"structured_outputs": {"json": SCHEMA}}, Constraint(json_schema=SCHEMA_TEXT)),
        ({"structured_outputs": {"json_object": True}}, Constraint(json_object=Constraint.JsonObject())),
        ({"guided_json": SCHEMA_TEXT}, Constraint(json_schema=SCHEMA_TEXT)),
        ({"guided_regex": "a+"}, Constraint(regex="a+")),
        ({"guided_choice": ["yes", "no"]}, Constraint(choices=Constraint.Choices(texts=["yes", "no"]))),
        ({"structured_outputs": {"grammar": "start: /a/"}}, Constraint(grammar="start: /a/")),
    ],
)
def test_a_shape_is_one_constraint_however_it_is_spelled(fields, made):
    assert generations(**fields)[0].constraint == made


def test_two_shapes_at_once_are_refused():
    assert refusal(guided_regex="a", response_format={"type": "json_object"}) == "guided_regex"
    assert refusal(structured_outputs={"regex": "a", "choice": ["b"]}) == "structured_outputs.choice"


def test_tools_keep_their_schema_key_by_key():
    chat = generations(tools=[ADD, SEE], tool_choice="auto", parallel_tool_calls=False)[0].chat

    assert chat.tools[0] == Tool(name="add", description="adds", parameters=SCHEMA_TEXT, strict=True)
    assert [tool.name for tool in chat.tools] == ["add", "see"]
    assert chat.tool_choice == ToolChoice(mode=generation_pb2.TOOL_MODE_AUTO)
    assert chat.HasField("parallel_tool_calls") and not chat.parallel_tool_calls


def test_a_function_without_parameters_takes_no_arguments():
    """As OpenAI has it: else a model that must call it makes some up."""
    tool = generations(tools=[SEE])[0].chat.tools[0]

    assert json.loads(tool.parameters) == {"type": "object", "properties": {}, "additionalProperties": False}


@pytest.mark.parametrize(
    ("choice", "made"),
    [
        ("none", ToolChoice(mode=generation_pb2.TOOL_MODE_NONE)),
        ("required", ToolChoice(mode=generation_pb2.TOOL_MODE_REQUIRED)),
        (
            {"type": "function", "function": {"name": "see"}},
            ToolChoice(mode=generation_pb2.TOOL_MODE_REQUIRED, name="see"),
        ),
    ],
)
def test_a_tool_choice_is_passed_on(choice, made):
    assert generations(tools=[ADD, SEE], tool_choice=choice)[0].chat.tool_choice == made


def test_allowed_tools_are_all_the_model_hears_of():
    only = {"mode": "required", "tools": [{"type": "function", "function": {"name": "see"}}]}
    chat = generations(tools=[ADD, SEE], tool_choice={"type": "allowed_tools", "allowed_tools": only})[0].chat

    assert [tool.name for tool in chat.tools] == ["see"]
    assert chat.tool_choice.mode == generation_pb2.TOOL_MODE_REQUIRED


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "see"}}}, "tool_choice"),
        ({"tools": [ADD], "tool_choice": {"type": "function", "function": {"name": "see"}}}, "tool_choice"),
        ({"tools": [ADD], "tool_choice": {"type": "function"}}, "tool_choice.function"),
        ({"tools": [ADD], "tool_choice": "maybe"}, "tool_choice"),
        ({"tools": [ADD], "tool_choice": 1}, "tool_choice"),
        ({"tools": [SEE, SEE]}, "tools[1]"),
        ({"tools": [{"type": "custom", "custom": {"name": "x"}}]}, "tools[0].type"),
        ({"tools": [{"type": "function", "function": {"name": "a" * 65}}]}, "tools[0].function.name"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": [SEE] * 129}, "tools"),
        ({"tools": "all"}, "tools"),
        (
            {"tools": [{"type": "function", "function": {"name": "a", "parameters": {"x": "y" * 70_000}}}]},
            "tools[0]",
        ),
    ],
)
def test_tools_that_cannot_be_are_named(fields, param):
    assert refusal(**fields) == param


def test_the_first_of_several_choices_is_the_only_one_of_one():
    (alone,) = generations(seed=5, temperature=1.0)
    several = generations(seed=5, temperature=1.0, n=8)

    assert several[0] == alone
    assert len({choice.sampling.seed for choice in several}) == 8
    for choice in several:
        choice.sampling.seed = 5
    assert set(map(str, several)) == {str(alone)}


def test_choices_without_a_seed_leave_it_to_the_leader():
    assert not any(choice.sampling.HasField("seed") for choice in generations(n=3))


def test_what_is_drawn_from_is_passed_on():
    sampling = generations(
        presence_penalty=1.5, frequency_penalty=-1, repetition_penalty=1.25, logit_bias={"5": -100, "0": 1}, top_k=-1
    )[0].sampling

    assert (sampling.presence_penalty, sampling.frequency_penalty, sampling.repetition_penalty) == (1.5, -1, 1.25)
    assert {bias.token: bias.bias for bias in sampling.logit_bias} == {5: -100, 0: 1}
    assert sampling.top_k == 0


def test_log_probabilities_are_asked_for_with_as_many_alternatives_as_wanted():
    assert generations(logprobs=True)[0].sampling.HasField("top_logprobs")
    assert generations(logprobs=True, top_logprobs=20)[0].sampling.top_logprobs == 20
    assert not generations()[0].sampling.HasField("top_logprobs")


@pytest.mark.parametrize(
    ("fields", "thinking"),
    [
        ({"reasoning_effort": "none"}, False),
        ({"reasoning_effort": "minimal"}, False),
        ({"reasoning_effort": "high"}, None),
        ({"reasoning_effort": "none", "chat_template_kwargs": {"enable_thinking": True}}, True),
        ({"chat_template_kwargs": {"enable_thinking": False}}, False),
    ],
)
def test_thinking_is_turned_off_by_either_name(fields, thinking):
    chat = generations(**fields)[0].chat

    assert (chat.enable_thinking if chat.HasField("enable_thinking") else None) is thinking
