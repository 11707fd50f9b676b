"""What a whole reply must look like, as a grammar for llguidance: reasoning, calls, content. Pure; compiles nothing.

The reply's own rules name the parts that callers bring (a tool's schema, the content's shape) as grammars of their own,
so that no name in one can mean something in another.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from silentswarm.core.v1 import generation_pb2
from swarm_core.errors import BadRequest

from swarm_stage.text.chat_messages import parameters_of
from swarm_stage.text.content_grammar import CONSTRAINT_FIELD, NO_BLANKS, check_schema, content_part, quoted
from swarm_stage.text.grammar_trial import HEAD
from swarm_stage.text.reply_shape import ARGUMENTS_MARK, HERMES_CLOSE, CallFormat, ReplyShape

GRAMMAR_BYTES_MAX = 256 * 1024  # of all parts of one reply; the largest schemas people publish are half of it
_COMBINED = frozenset(("type", "$ref", "anyOf", "oneOf", "allOf", "enum", "const"))
_BLANKS_MAX = 4  # behind reasoning and around calls; more would be a place to stay for ever


@dataclass(frozen=True)
class Grammar:
    """rules: the reply's own, in Lark. parts: name, then what a grammar is. fields: whose fault a part is, by name."""

    rules: str
    parts: tuple[tuple[str, Mapping[str, Any]], ...]
    fields: Mapping[str, str]

    def to_list(self) -> list[dict[str, Any]]:
        """As llguidance takes them, the reply's own first."""
        return [{"name": "reply", "lark_grammar": self.rules}, *({"name": name, **part} for name, part in self.parts)]


def reply_grammar(
    generation: generation_pb2.Generation, shape: ReplyShape, special: Mapping[int, str]
) -> Grammar | None:
    """The grammar of one reply; None when it may be any text.

    special: marks that are special tokens, by id. Raises BadRequest for what can be seen to be wrong without compiling.
    """
    parts: list[tuple[str, Mapping[str, Any]]] = []
    fields: dict[str, str] = {}
    mode = generation.chat.tool_choice.mode
    if generation.HasField("constraint"):
        parts.append(("content", content_part(generation.constraint)))
        fields["content"] = CONSTRAINT_FIELD
    calls = _Calls(shape, special)
    if shape.calls is not None:
        for place, tool in enumerate(_callable_tools(generation.chat)):
            name = f"arguments_{place}"
            schema = {**parameters_of(tool), "x-guidance": _call_options(tool.strict)}
            if not _COMBINED & schema.keys():
                schema["type"] = "object"
            check_schema(schema, "tools")
            parts.append((name, {"json_schema": schema}))
            fields[name] = "tools"
            calls.add(tool.name, name)
    if not parts:
        return None
    body = _body(calls, mode == generation_pb2.TOOL_MODE_REQUIRED, "content" in fields)
    rules = HEAD + _reasoning_rules(shape, special) + body
    grammar = Grammar(rules, tuple(parts), fields)
    if len(json.dumps(grammar.to_list())) > GRAMMAR_BYTES_MAX:
        field = "tools" if "content" not in fields else CONSTRAINT_FIELD
        raise BadRequest(f"the schemas and grammars of a request have at most {GRAMMAR_BYTES_MAX:,} bytes", field=field)
    return grammar


def _callable_tools(chat: generation_pb2.Chat) -> Sequence[generation_pb2.Tool]:
    """The tools that may be called."""
    choice = chat.tool_choice
    if choice.mode == generation_pb2.TOOL_MODE_REQUIRED and choice.name:
        return [tool for tool in chat.tools if tool.name == choice.name]
    return chat.tools


class _Calls:
    """The rules of calls in one model's format."""

    def __init__(self, shape: ReplyShape, special: Mapping[int, str]) -> None:
        self._shape = shape
        self._marks = {text: f"<[{token}]>" for token, text in special.items()}
        self._calls: list[str] = []

    def add(self, tool: str, arguments: str) -> None:
        """A tool and the part that its arguments are."""
        calls = self._shape.calls
        if calls is CallFormat.MISTRAL_ARGS:
            head = f"{quoted(tool)} {self._mark(ARGUMENTS_MARK)}"
            self._calls.append(f"{head} @{arguments}")
        else:
            key = "parameters" if calls is CallFormat.LLAMA else "arguments"
            head = quoted(f'{{"name": {json.dumps(tool)}, "{key}": ')
            self._calls.append(f'{head} @{arguments} "}}"')

    @property
    def any(self) -> bool:
        """Whether there is a tool to call."""
        return bool(self._calls)

    def rules(self) -> str:
        """`calls`: one or more, with their marks; `called`: behind the first mark."""
        calls, mark = self._shape.calls, self._mark(self._shape.calls.mark if self._shape.calls else "")
        one = "\n    | ".join(self._calls)
        is_single = self._shape.calls_max == 1
        if calls is CallFormat.HERMES:
            called = f'"\\n" call "\\n" {self._mark(HERMES_CLOSE)}'
            more = "" if is_single else f" (BLANK {mark} called_one)*"
        elif calls is CallFormat.LLAMA:
            called, more = "call", "" if is_single else ' ("; " call)*'
        elif calls is CallFormat.MISTRAL_LIST:
            listed = "call" if is_single else 'call (", " call)*'
            called, more = f'"[" {listed} "]"', ""
        else:
            called, more = "call", "" if is_single else f" ({mark} call)*"
        first = "" if calls is CallFormat.LLAMA else f"{mark} "
        return f"call: {one}\ncalled_one: {called}\ncalled: called_one{more}\ncalls: {first}called\n"

    def free_rules(self) -> str:
        """`free`: any text, in which the mark of a call is followed by calls and nothing else."""
        if self._shape.calls is CallFormat.LLAMA:
            bare = '"" | FREE' if not (tag := self._marks.get(self._shape.calls.mark)) else f'"" | FREE | {tag} called'
            return f"free: calls | {bare}\nFREE: /[^{{](.|\\n)*/\n"
        mark = self._shape.calls.mark if self._shape.calls else ""
        if mark in self._marks:
            return f"free: TEXT ({self._marks[mark]} called BLANK)?\n"
        return f"free: TEXT | before called BLANK\nbefore[lazy]: TEXT {quoted(mark)}\n"

    def _mark(self, text: str) -> str:
        return self._marks.get(text, quoted(text))


def _body(calls: _Calls, must_call: bool, has_content: bool) -> str:
    """The rules behind the reasoning."""
    rules = "TEXT: /(.|\\n)*/\n" + f"BLANK: /[ \\t\\r\\n]{{0,{_BLANKS_MAX}}}/\n"
    if not calls.any:
        return rules + "body: @content\n"
    rules += calls.rules()
    if must_call:
        return rules + "body: calls\n"
    if has_content:
        return rules + "body: calls | @content\n"
    return rules + calls.free_rules() + "body: free\n"


def _reasoning_rules(shape: ReplyShape, special: Mapping[int, str]) -> str:
    """`start`: the reasoning that goes on or may begin, then `body`."""
    marks = shape.reasoning
    if marks is None or not (shape.is_reasoning or shape.may_reason):
        return "start: body\n"
    ids = {text: f"<[{token}]>" for token, text in special.items()}
    if marks.close in ids:
        rules = f"reasoned: TEXT {ids[marks.close]}\n"
    else:
        rules = f"reasoned[lazy]: TEXT {quoted(marks.close)}\n"
    if shape.is_reasoning:
        return rules + "start: reasoned BLANK body\n"
    if marks.open in ids:
        return rules + f"start: ({ids[marks.open]} reasoned BLANK)? body\n"
    return rules + f"begun[lazy]: BLANK {quoted(marks.open)}\nstart: (begun reasoned BLANK)? body\n"


def _call_options(is_strict: bool) -> dict[str, Any]:
    """Arguments are spelled as templates spell calls, with blanks behind commas and colons."""
    return {
        **NO_BLANKS,
        "item_separator": ", ",
        "key_separator": ": ",
        "lenient": not is_strict,
        "coerce_one_of": not is_strict,
    }
