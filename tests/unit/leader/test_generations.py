"""What a generation may ask: every number in its range, every text in its size, and the field named when not."""

import math

import pytest
from silentswarm.core.v1 import generation_pb2
from swarm_core.errors import BadRequest
from swarm_leader.flows.drawing import what_needs_sampling
from swarm_leader.rpc.generation_shapes import CALLS_MAX, CHOICES_MAX, SHAPE_BYTES_MAX, TOOLS_MAX
from swarm_leader.rpc.generations import BIASES_MAX, check_generation

Chat, ChatMessage = generation_pb2.Chat, generation_pb2.ChatMessage
Constraint = generation_pb2.Constraint
Choices = Constraint.Choices
Generation = generation_pb2.Generation
LogitBias = generation_pb2.LogitBias
Sampling = generation_pb2.Sampling
Tool, ToolCall, ToolChoice = generation_pb2.Tool, generation_pb2.ToolCall, generation_pb2.ToolChoice

LONG = "x" * (SHAPE_BYTES_MAX + 1)
FIT = "x" * SHAPE_BYTES_MAX
REQUIRED = generation_pb2.TOOL_MODE_REQUIRED


def drawn(**sampling) -> Generation:
    return Generation(prompt="x", sampling=Sampling(**sampling))


def biased(*biases) -> Generation:
    return drawn(logit_bias=[LogitBias(token=token, bias=bias) for token, bias in biases])


def shaped(**kind) -> Generation:
    return Generation(prompt="x", constraint=Constraint(**kind))


def chat(*tools, choice=None, message=None) -> Generation:
    messages = [message or ChatMessage(role="user", content="x")]
    return Generation(chat=Chat(messages=messages, tools=tools, tool_choice=choice))


def called(*calls, answers="") -> Generation:
    return chat(message=ChatMessage(role="assistant", tool_calls=calls, tool_call_id=answers))


TOOL = Tool(name="look", parameters="{}")


@pytest.mark.parametrize(
    "generation",
    [
        drawn(frequency_penalty=2, presence_penalty=-2, repetition_penalty=1.3, top_logprobs=20),
        biased(*[(token, 100.0) for token in range(BIASES_MAX)]),
        shaped(json_object=Constraint.JsonObject()),
        shaped(json_schema=FIT),
        shaped(choices=Choices(texts=["x"] * CHOICES_MAX)),
        chat(*[Tool(name=f"tool-{index}") for index in range(TOOLS_MAX)]),
        chat(TOOL, choice=ToolChoice(mode=REQUIRED, name="look")),
        chat(choice=ToolChoice(mode=generation_pb2.TOOL_MODE_NONE)),
        called(ToolCall(id="call_1", name="look", arguments="{}")),
    ],
    ids=range(9),
)
def test_what_makes_sense_passes_as_it_is(generation):
    assert check_generation(generation) is generation


@pytest.mark.parametrize(
    ("generation", "field"),
    [
        *[(drawn(frequency_penalty=number), "frequency_penalty") for number in (-2.1, 2.1, math.nan, math.inf)],
        *[(drawn(presence_penalty=number), "presence_penalty") for number in (-2.1, 2.1, math.nan)],
        *[(drawn(repetition_penalty=number), "repetition_penalty") for number in (0, -1, math.nan, math.inf)],
        *[(drawn(top_logprobs=number), "top_logprobs") for number in (21, 10**6)],
        *[(biased((1, bias)), "logit_bias") for bias in (-100.5, 101, math.nan, math.inf)],
        (biased((1, 1), (1, 2)), "logit_bias"),
        (biased(*[(token, 1) for token in range(BIASES_MAX + 1)]), "logit_bias"),
        (shaped(), "constraint"),
        (shaped(json_schema=""), "constraint.json_schema"),
        (shaped(json_schema=LONG), "constraint.json_schema"),
        (shaped(regex=LONG), "constraint.regex"),
        (shaped(grammar=LONG), "constraint.grammar"),
        (shaped(choices=Choices()), "constraint.choices"),
        (shaped(choices=Choices(texts=["a", ""])), "constraint.choices"),
        (shaped(choices=Choices(texts=[LONG])), "constraint.choices"),
        (shaped(choices=Choices(texts=["x"] * (CHOICES_MAX + 1))), "constraint.choices"),
        (chat(*[Tool(name=f"tool-{index}") for index in range(TOOLS_MAX + 1)]), "tools"),
        (chat(TOOL, TOOL), "tools"),
        (chat(*[Tool(name=f"t{index}", parameters=FIT) for index in range(5)]), "tools"),
        (chat(TOOL, Tool(name="")), "tools[1].name"),
        (chat(Tool(name="a b")), "tools[0].name"),
        (chat(Tool(name="x\n")), "tools[0].name"),
        (chat(Tool(name="x" * 65)), "tools[0].name"),
        (chat(Tool(name="x", parameters=LONG)), "tools[0].parameters"),
        (chat(choice=ToolChoice(mode=REQUIRED)), "tool_choice"),
        (chat(TOOL, choice=ToolChoice(mode=REQUIRED, name="listen")), "tool_choice"),
        (chat(TOOL, choice=ToolChoice(name="look")), "tool_choice"),
        (chat(TOOL, choice=ToolChoice(mode=99)), "tool_choice"),
        (called(*[ToolCall(name="look")] * (CALLS_MAX + 1)), "messages[0].tool_calls"),
        (called(ToolCall(id="x" * 257)), "messages[0].tool_calls[0].id"),
        (called(ToolCall(), ToolCall(name="x" * 257)), "messages[0].tool_calls[1].name"),
        (called(answers="x" * 257), "messages[0].tool_call_id"),
    ],
)
def test_what_makes_none_is_refused_by_its_field(generation, field):
    with pytest.raises(BadRequest) as refused:
        check_generation(generation)

    assert refused.value.facts["field"] == field
    assert len(refused.value.message) < 300


@pytest.mark.parametrize(
    ("generation", "asked"),
    [
        (Generation(prompt="x"), ""),
        (drawn(temperature=0.5, top_p=0.5, top_k=3, min_p=0.1, seed=1), ""),
        (drawn(frequency_penalty=0, presence_penalty=0, repetition_penalty=1), ""),
        (chat(TOOL, choice=ToolChoice(mode=generation_pb2.TOOL_MODE_NONE)), ""),
        (drawn(frequency_penalty=0.1), "frequency_penalty"),
        (drawn(presence_penalty=-0.1), "presence_penalty"),
        (drawn(repetition_penalty=1.1), "repetition_penalty"),
        (biased((1, 1)), "logit_bias"),
        (drawn(top_logprobs=0), "top_logprobs"),
        (shaped(json_object=Constraint.JsonObject()), "constraint"),
        (chat(TOOL), "tools"),
    ],
)
def test_only_what_an_older_stage_would_leave_out_needs_the_capability(generation, asked):
    assert what_needs_sampling(generation) == asked
