"""Tools a model may call, and whether it does. What the legacy `functions` were is refused by its name."""

import json
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field, Tag
from silentswarm.core.v1 import generation_pb2

from swarm_gateway.openai.reading.fields import FunctionType, Name, Schema, Strict, by_kind, wrong

TOOLS_MAX = 128
DESCRIPTION_CHARACTERS_MAX = 16_384
SCHEMA_BYTES_MAX = 64 * 2**10  # what a grammar is made of; the leader takes no larger one
_MODES = {
    "none": generation_pb2.TOOL_MODE_NONE,
    "auto": generation_pb2.TOOL_MODE_AUTO,
    "required": generation_pb2.TOOL_MODE_REQUIRED,
}
# What a function without `parameters` takes: they are not "anything" with OpenAI.
NO_ARGUMENTS = {"type": "object", "properties": {}, "additionalProperties": False}


class FunctionSpec(Strict):
    """A function: its name, what it does, the schema of its arguments."""

    name: Name
    description: Annotated[str, Field(max_length=DESCRIPTION_CHARACTERS_MAX)] | None = None
    parameters: Schema | None = None
    strict: bool | None = None

    def to_proto(self) -> generation_pb2.Tool:
        """As the swarm knows it."""
        return generation_pb2.Tool(
            name=self.name,
            description=self.description or "",
            parameters=compact(NO_ARGUMENTS if self.parameters is None else self.parameters),
            strict=bool(self.strict),
        )


class ToolSpec(Strict):
    """One tool of a chat request. Functions only."""

    type: FunctionType
    function: FunctionSpec


class NamedFunction(Strict):
    """Which function."""

    name: Name


class NamedTool(Strict):
    """Which tool."""

    type: Literal["function"]
    function: NamedFunction


class AllowedTools(Strict):
    """Only these of all tools."""

    mode: Literal["auto", "required"]
    tools: Annotated[list[NamedTool], Field(min_length=1, max_length=TOOLS_MAX)]


class ToolChoice(Strict):
    """A choice that is more than a word. "function": this one must be called. "allowed_tools": one of these may be."""

    type: Literal["function", "allowed_tools"]
    function: NamedFunction | None = None
    allowed_tools: AllowedTools | None = None


class ToolFields(Strict):
    """The tool fields of a chat request."""

    tools: Annotated[list[ToolSpec], Field(max_length=TOOLS_MAX)] | None = None
    tool_choice: (
        Annotated[
            Annotated[ToolChoice, Tag("<object>")] | Annotated[Literal["none", "auto", "required"], Tag("<text>")],
            by_kind('must be "none", "auto", "required" or an object'),
        ]
        | None
    ) = None
    parallel_tool_calls: bool | None = None


def check_tools(tools: Sequence[FunctionSpec]) -> None:
    """Raises HttpProblem when two have one name, or a schema is too large."""
    names: set[str] = set()
    for at, tool in enumerate(tools):
        if tool.name in names:
            raise wrong(f"tools[{at}]", f"another tool is called {tool.name!r}")
        names.add(tool.name)
        if tool.parameters is not None:
            check_schema_size(f"tools[{at}]", compact(tool.parameters))


def check_schema_size(param: str, schema: str) -> None:
    """Raises HttpProblem for a schema of more bytes than SCHEMA_BYTES_MAX."""
    if len(schema) * 4 > SCHEMA_BYTES_MAX and len(schema.encode()) > SCHEMA_BYTES_MAX:
        raise wrong(param, f"a schema has at most {SCHEMA_BYTES_MAX} bytes of JSON")


def compact(schema: Schema) -> str:
    """A schema as JSON without spaces; its keys stay in their order, which replies follow."""
    return json.dumps(schema, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def choose(
    tools: Sequence[FunctionSpec], choice: str | ToolChoice | None
) -> tuple[Sequence[FunctionSpec], generation_pb2.ToolChoice | None]:
    """The tools that may be called, and whether they are. None: the model decides.

    Raises HttpProblem, param "tool_choice", when a tool must be called that is not there.
    """
    if choice is None:
        return tools, None
    if isinstance(choice, str):
        _check_there(tools, choice == "required")
        return tools, generation_pb2.ToolChoice(mode=_MODES[choice])
    if choice.type == "function":
        if choice.function is None:
            raise wrong("tool_choice.function", "is missing")
        return tools, must_call(tools, choice.function.name)
    if choice.allowed_tools is None:
        raise wrong("tool_choice.allowed_tools", "is missing")
    names = [tool.function.name for tool in choice.allowed_tools.tools]
    return allow_only(tools, names, choice.allowed_tools.mode)


def must_call(tools: Sequence[FunctionSpec], name: str) -> generation_pb2.ToolChoice:
    """This tool and no other. Raises HttpProblem when there is none of this name."""
    _check_named(tools, name)
    return generation_pb2.ToolChoice(mode=generation_pb2.TOOL_MODE_REQUIRED, name=name)


def allow_only(
    tools: Sequence[FunctionSpec], names: Sequence[str], mode: str
) -> tuple[Sequence[FunctionSpec], generation_pb2.ToolChoice]:
    """Those of these names. Raises HttpProblem when one is not there."""
    for name in names:
        _check_named(tools, name)
    return [tool for tool in tools if tool.name in names], generation_pb2.ToolChoice(mode=_MODES[mode])


def _check_named(tools: Sequence[FunctionSpec], name: str) -> None:
    if name not in {tool.name for tool in tools}:
        raise wrong("tool_choice", f"there is no tool {name!r} in tools")


def _check_there(tools: Sequence[FunctionSpec], is_required: bool) -> None:
    if is_required and not tools:
        raise wrong("tool_choice", "a tool must be called, and there are no tools")
