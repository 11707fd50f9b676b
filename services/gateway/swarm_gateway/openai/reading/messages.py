"""One message of a chat request. Text only: parts are joined, anything else is refused by its name."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, WithJsonSchema, field_validator
from silentswarm.core.v1 import generation_pb2

from swarm_gateway.openai.reading.fields import Strict, problem_in_value

MESSAGES_MAX = 8192
CALLS_MAX = 128  # of tools, in one message
_ROLES = {"developer": "system"}  # one meaning, renamed by OpenAI; templates know "system"
_PARTS = {"text": "text", "refusal": "refusal"}  # kind -> the key of its text
_CONTENT = {
    "oneOf": [
        {"type": "string"},
        {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["type", "text"],
                "properties": {"type": {"const": "text"}, "text": {"type": "string"}},
            },
        },
    ]
}
Id = Annotated[str, Field(min_length=1, max_length=256)]


class FunctionCall(Strict):
    """What an earlier reply wanted called. arguments: JSON in a string."""

    name: Annotated[str, Field(min_length=1, max_length=256)]
    arguments: str = ""


class ToolCall(Strict):
    """One call of an earlier reply."""

    id: Id
    type: Literal["function"] = "function"
    function: FunctionCall


def _tell_what_goes_together(schema: dict[str, Any]) -> None:
    """By who speaks. That every call is answered by the messages behind it no schema can say."""
    said = {"type": ["string", "array"], "minLength": 1}
    schema["anyOf"] = [
        {"properties": {"role": {"enum": ["system", "developer", "user"]}, "content": said}, "required": ["content"]},
        {"properties": {"role": {"const": "assistant"}, "content": said}, "required": ["content"]},
        {"properties": {"role": {"const": "assistant"}}, "required": ["tool_calls"]},
        {"properties": {"role": {"const": "tool"}, "content": said}, "required": ["content", "tool_call_id"]},
    ]


class Message(Strict):
    """One message. content None is an assistant's that only called tools."""

    model_config = ConfigDict(json_schema_extra=_tell_what_goes_together)

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Annotated[str, WithJsonSchema(_CONTENT)] | None = None
    name: Annotated[str, Field(max_length=256)] | None = None
    tool_calls: Annotated[list[ToolCall], Field(max_length=CALLS_MAX)] | None = None
    tool_call_id: Id | None = None
    # Of an assistant's: what it thought, as replies tell it; some servers and clients call it `reasoning`.
    reasoning_content: str | None = None
    reasoning: str | None = None
    audio: None = None
    function_call: None = None

    @field_validator("content", mode="before")
    @classmethod
    def _join_parts(cls, content: Any) -> Any:
        return joined_parts(content, _PARTS)

    def to_proto(self) -> generation_pb2.ChatMessage:
        """As the swarm knows it."""
        calls = [
            generation_pb2.ToolCall(id=call.id, name=call.function.name, arguments=call.function.arguments)
            for call in self.tool_calls or ()
        ]
        return generation_pb2.ChatMessage(
            role=_ROLES.get(self.role, self.role),
            content=self.content or "",
            name=self.name or "",
            tool_calls=calls,
            tool_call_id=self.tool_call_id or "",
            reasoning=(self.reasoning_content or self.reasoning or "") if self.role == "assistant" else "",
        )


def joined_parts(content: Any, kinds: Mapping[str, str]) -> Any:
    """An array of parts as one text; anything else as it is. kinds: those that are text -> the key of it.

    Raises what validators raise.
    """
    if not isinstance(content, list):
        return content
    return "".join(_text_of_part(at, part, kinds) for at, part in enumerate(content))


def _text_of_part(at: int, part: Any, kinds: Mapping[str, str]) -> str:
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(kind, str):
        raise problem_in_value(f"part {at} must be an object with a type")
    if kind not in kinds:
        raise problem_in_value(f'part {at} is of type "{kind[:50]}"; this model reads text only')
    text = part.get(kinds[kind])
    if not isinstance(text, str):
        raise problem_in_value(f"part {at}: {kinds[kind]} must be a string")
    return text
