"""What is to be generated, from the fields that every endpoint has under the same names. Pure."""

from collections.abc import Iterable, Sequence
from typing import Any

from silentswarm.core.v1 import generation_pb2

from swarm_gateway.openai.reading.messages import Message
from swarm_gateway.openai.reading.sampling import DrawingFields, sampling_of
from swarm_gateway.openai.reading.tools import FunctionSpec


def chat_of(
    messages: Iterable[Message],
    tools: Sequence[FunctionSpec],
    choice: generation_pb2.ToolChoice | None,
    parallel_calls: bool | None,
    thinking: bool | None,
) -> generation_pb2.Chat:
    """A conversation with the tools that may be called. None: the model decides."""
    return generation_pb2.Chat(
        messages=[message.to_proto() for message in messages],
        enable_thinking=thinking,
        tools=[tool.to_proto() for tool in tools],
        tool_choice=choice if tools else None,
        parallel_tool_calls=parallel_calls if tools else None,
    )


def generation_for(
    fields: DrawingFields,
    alternatives: int | None,
    new_tokens_max: int | None,
    constraint: generation_pb2.Constraint | None,
    **given: Any,
) -> generation_pb2.Generation:
    """One generation; what a request leaves out stays absent, for the model's own defaults.

    given: its input, one of chat, prompt and prompt_ids. alternatives: told per token, None for no log-probabilities.
    """
    return generation_pb2.Generation(
        sampling=sampling_of(fields, alternatives),
        new_tokens_max=new_tokens_max,
        stop=fields.stop or (),
        ignore_eos=bool(fields.ignore_eos),
        new_tokens_min=fields.min_tokens or 0,
        constraint=constraint,
        **given,
    )
