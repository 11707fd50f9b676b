"""One message of a chat request. Text only: parts are joined, anything else is refused by its name."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic_core import PydanticCustomError


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)


class Function(_Strict):
    """What an earlier reply wanted called. arguments: JSON in a string."""

    name: Annotated[str, Field(min_length=1)]
    arguments: str = ""


class ToolCall(_Strict):
    """One call of an earlier reply."""

    id: Annotated[str, Field(min_length=1)]
    function: Function


class Message(_Strict):
    """One message. content None is an assistant's that only called tools."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | None = None
    name: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None

    @field_validator("content", mode="before")
    @classmethod
    def _join_parts(cls, content: Any) -> Any:
        if not isinstance(content, list):
            return content
        return "".join(_text_of_part(at, part) for at, part in enumerate(content))


def _text_of_part(at: int, part: Any) -> str:
    """The text of one part of an array."""
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(kind, str):
        raise PydanticCustomError("part", "part {at} must be an object with a type", {"at": at})
    if kind != "text":
        words = 'part {at} is of type "{kind}"; this model reads text only'
        raise PydanticCustomError("part", words, {"at": at, "kind": kind[:50]})
    text = part.get("text")
    if not isinstance(text, str):
        raise PydanticCustomError("part", "part {at}: text must be a string", {"at": at})
    return text
