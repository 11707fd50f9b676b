"""The items of a request's input, and the conversation they make. Text and functions only; the rest is refused."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, Tag, field_validator

from swarm_gateway.openai.reading.fields import Strict, by_kind, unsupported, validated, wrong
from swarm_gateway.openai.reading.history import check_history
from swarm_gateway.openai.reading.messages import MESSAGES_MAX, FunctionCall, Id, Message, ToolCall, joined_parts
from swarm_gateway.problems import HttpProblem

ITEMS_MAX = MESSAGES_MAX
_TEXTS = {"input_text": "text", "output_text": "text", "text": "text", "refusal": "refusal"}
_THOUGHTS = {"reasoning_text": "text", "summary_text": "text", "text": "text"}
Input = Annotated[
    Annotated[str, Field(min_length=1), Tag("<text>")]
    | Annotated[list[dict[str, Any]], Field(min_length=1, max_length=ITEMS_MAX), Tag("<array>")],
    by_kind("must be a text, or an array of items"),
]


class MessageItem(Strict):
    """What somebody said."""

    type: Literal["message"] = "message"
    role: Literal["system", "developer", "user", "assistant"]
    content: str

    @field_validator("content", mode="before")
    @classmethod
    def _join_parts(cls, content: Any) -> Any:
        return joined_parts(content, _TEXTS)


class CallItem(Strict):
    """A call an earlier reply made."""

    type: Literal["function_call"]
    call_id: Id
    name: Annotated[str, Field(min_length=1, max_length=256)]
    arguments: str


class OutputItem(Strict):
    """What a call brought."""

    type: Literal["function_call_output"]
    call_id: Id
    output: str

    @field_validator("output", mode="before")
    @classmethod
    def _join_parts(cls, output: Any) -> Any:
        return joined_parts(output, _TEXTS)


class ReasoningItem(Strict):
    """What an earlier reply thought, in its words or in short. Encrypted thoughts are nobody's here and are ignored."""

    type: Literal["reasoning"]
    content: str | None = None
    summary: str | None = None

    @field_validator("content", "summary", mode="before")
    @classmethod
    def _join_parts(cls, parts: Any) -> Any:
        return joined_parts(parts, _THOUGHTS)


Item = MessageItem | CallItem | OutputItem | ReasoningItem
_KINDS: Mapping[str, type[MessageItem] | type[CallItem] | type[OutputItem] | type[ReasoningItem]] = {
    "message": MessageItem,
    "function_call": CallItem,
    "function_call_output": OutputItem,
    "reasoning": ReasoningItem,
}
T = TypeVar("T")


def messages_of(instructions: str | None, given: str | Sequence[Mapping[str, Any]]) -> list[Message]:
    """The conversation: what an assistant thought, said and called in a row is one message of it.

    Raises HttpProblem 400 whose param is the path of the item, or "input" where items do not fit together.
    """
    conversation = _Conversation()
    if instructions:
        conversation.say("instructions", Message(role="system", content=instructions))
    if isinstance(given, str):
        conversation.say("input", Message(role="user", content=given))
    else:
        for at, document in enumerate(given):
            conversation.take(f"input[{at}]", item_of(at, document))
    messages, places = conversation.end()
    if not messages:
        raise wrong("input", "there is nothing to reply to")
    check_history(messages, "input", places)
    return messages


def item_of(at: int, document: Mapping[str, Any]) -> Item:
    """One item. Raises HttpProblem 400 with its path."""
    kind = document.get("type", "message" if "role" in document else None)
    if not isinstance(kind, str):
        raise wrong(f"input[{at}].type", "is missing")
    model = _KINDS.get(kind)
    if model is None:
        words = f'"{kind[:50]}" is not supported; messages, functions and reasoning are'
        raise unsupported(f"input[{at}].type", words)
    try:
        return validated(model, document)
    except HttpProblem as problem:
        told = problem.problem
        raise wrong(f"input[{at}].{told.param}", told.message.removeprefix(f"{told.param}: ")) from None


class _Conversation:
    """Messages so far, and an assistant's that is not complete yet."""

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._places: list[str] = []
        self._place = ""
        self._said: str | None = None
        self._thought = ""
        self._calls: list[ToolCall] = []

    def take(self, place: str, item: Item) -> None:
        """The next item."""
        if isinstance(item, CallItem):
            self._place = self._place or place
            function = FunctionCall(name=item.name, arguments=item.arguments)
            self._calls.append(ToolCall(id=item.call_id, function=function))
        elif isinstance(item, ReasoningItem):
            if self._said is not None or self._calls:
                self._flush()
            self._place = self._place or place
            self._thought += item.content or item.summary or ""
        elif isinstance(item, OutputItem):
            self.say(place, Message(role="tool", content=item.output, tool_call_id=item.call_id))
        elif item.role == "assistant":
            if self._said is not None and not self._calls:
                self._flush()
            self._place = self._place or place
            self._said = (self._said or "") + item.content
        else:
            self.say(place, Message(role=item.role, content=item.content))

    def say(self, place: str, message: Message) -> None:
        """A message of somebody else's."""
        self._flush()
        self._messages.append(message)
        self._places.append(place)

    def end(self) -> tuple[list[Message], list[str]]:
        """All messages, and where each came from."""
        self._flush()
        return self._messages, self._places

    def _flush(self) -> None:
        if self._said is not None or self._calls:
            message = Message(
                role="assistant",
                content=self._said,
                tool_calls=self._calls or None,
                reasoning_content=self._thought or None,
            )
            self._messages.append(message)
            self._places.append(self._place)
        self._place, self._said, self._thought, self._calls = "", None, "", []
