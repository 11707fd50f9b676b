"""How the parts of a model's reply are told apart: the marks around reasoning and around calls. Pure facts, no parser.

What a model writes is what its chat template shows it, so the template is asked. A model whose template knows no
tools, or words them in a way not known here, is told of them in the first of these formats by chat_messages.py.
"""

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True)
class Marks:
    """What stands before and behind a part."""

    open: str
    close: str


class CallFormat(Enum):
    """How calls are written."""

    HERMES = "hermes"  # <tool_call>{"name": .., "arguments": ..}</tool_call>; Qwen, Hermes, Granite
    LLAMA = "llama"  # {"name": .., "parameters": ..}, perhaps behind <|python_tag|>; several parted by ";"
    MISTRAL_LIST = "mistral list"  # [TOOL_CALLS][{"name": .., "arguments": ..}, ..]
    MISTRAL_ARGS = "mistral args"  # [TOOL_CALLS]name[ARGS]{..}, all of it again for the next

    @property
    def mark(self) -> str:
        """What begins a call."""
        return {"hermes": "<tool_call>", "llama": "<|python_tag|>"}.get(self.value, "[TOOL_CALLS]")


HERMES_CLOSE = "</tool_call>"
ARGUMENTS_MARK = "[ARGS]"
CALL_ID_MARK = "[CALL_ID]"
_REASONING = (
    Marks("<think>", "</think>"),
    Marks("[THINK]", "[/THINK]"),
    Marks("<seed:think>", "</seed:think>"),
    Marks("<|START_THINKING|>", "<|END_THINKING|>"),
)
# Formats that share a mark with a known one and are another.
_OTHERWISE = ("<function=", "<arg_key>", "<parameter=")


@dataclass(frozen=True)
class ReplyShape:
    """How one reply is read.

    is_reasoning: it begins inside reasoning. may_reason: it may begin with the mark that opens it. calls: None when
    what looks like a call is text. calls_max: 0 is any number.
    """

    reasoning: Marks | None = None
    is_reasoning: bool = False
    may_reason: bool = False
    calls: CallFormat | None = None
    tools: frozenset[str] = frozenset()
    calls_max: int = 0

    @property
    def is_plain(self) -> bool:
        """All of it is content."""
        return self.reasoning is None and self.calls is None


PLAIN = ReplyShape()


def reasoning_marks(template: str, tokens: Collection[str]) -> Marks | None:
    """The marks a model reasons between, when its template or its vocabulary knows them."""
    return next((marks for marks in _REASONING if marks.close in template or marks.close in tokens), None)


def call_format(template: str) -> CallFormat | None:
    """The format a template asks for; None when it knows no tools, or in a way that is not known here."""
    if "tools" not in template or any(other in template for other in _OTHERWISE):
        return None
    if "[TOOL_CALLS]" in template:
        return CallFormat.MISTRAL_ARGS if ARGUMENTS_MARK in template else CallFormat.MISTRAL_LIST
    if HERMES_CLOSE in template:
        return CallFormat.HERMES
    if "<|python_tag|>" in template or ('"parameters"' in template and '{"name"' in template):
        return CallFormat.LLAMA
    return None


def marks_of(shape: ReplyShape) -> tuple[str, ...]:
    """All marks that may come in a reply of this shape; special tokens among them are not skipped as no text."""
    found: list[str] = []
    if shape.reasoning is not None:
        found += [shape.reasoning.open, shape.reasoning.close]
    if shape.calls is not None:
        found.append(shape.calls.mark)
    if shape.calls is CallFormat.HERMES:
        found.append(HERMES_CLOSE)
    if shape.calls is CallFormat.MISTRAL_ARGS:
        found += [ARGUMENTS_MARK, CALL_ID_MARK]
    return tuple(found)
