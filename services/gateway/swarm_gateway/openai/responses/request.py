"""A request for a response as it arrives: what is read, what is refused, and what is to be generated. Pure.

Nothing is kept between requests: `store` is ignored, and what would need the past of another request is refused.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, Tag
from silentswarm.core.v1 import generation_pb2

from swarm_gateway.openai.reading.constraints import of_schema
from swarm_gateway.openai.reading.documents import read_document
from swarm_gateway.openai.reading.fields import (
    WHOLE,
    Count,
    FunctionType,
    ModelId,
    Name,
    Schema,
    Strict,
    by_kind,
    refuse_unsupported,
    validated,
    wrong,
)
from swarm_gateway.openai.reading.generations import chat_of, generation_for
from swarm_gateway.openai.reading.sampling import OTHERS_FIELDS, TOP_LOGPROBS_MAX, DrawingFields, check_least
from swarm_gateway.openai.reading.thinking import Effort, TemplateArguments, wants_thinking
from swarm_gateway.openai.reading.tools import TOOLS_MAX, FunctionSpec, allow_only, check_tools, choose, must_call
from swarm_gateway.openai.responses.items import Input, messages_of

LOGPROBS = "message.output_text.logprobs"
UNSUPPORTED: Mapping[str, tuple[object, ...]] = {
    **OTHERS_FIELDS,
    "background": (False,),
    "context_management": ([],),
    "conversation": (),
    "max_completion_tokens": (),  # of chat; here it is max_output_tokens
    "max_tokens": (),
    "moderation": (),
    "n": (1,),
    "previous_response_id": (),
    "prompt": (),
    "response_format": (),  # of chat; here it is text.format
    "truncation": ("disabled",),  # a conversation is never cut in silence
}
Metadata = Annotated[dict[str, Annotated[str, Field(max_length=512)]], Field(max_length=16)]


class FunctionTool(FunctionSpec):
    """One tool. Functions only."""

    type: FunctionType


class ResponseNamedTool(Strict):
    """Which tool."""

    type: FunctionType
    name: Name


class ResponseToolChoice(Strict):
    """A choice that is more than a word. "function": this one must be called. "allowed_tools": one of these may be."""

    type: Literal["function", "allowed_tools"]
    name: Name | None = None
    mode: Literal["auto", "required"] = "auto"
    tools: Annotated[list[ResponseNamedTool], Field(min_length=1, max_length=TOOLS_MAX)] | None = None


class TextFormat(Strict):
    """What shape the text has."""

    type: Literal["text", "json_object", "json_schema"]
    name: Name | None = None
    schema_: Annotated[Schema | None, Field(alias="schema")] = None
    strict: bool | None = None


class TextOptions(Strict):
    """Of the text."""

    format: TextFormat | None = None


class Reasoning(Strict):
    """Of reasoning. A summary is never made: the reasoning itself is told."""

    effort: Effort | None = None


class ResponsesRequest(DrawingFields):
    """POST /v1/responses."""

    model: ModelId
    input: Input
    instructions: str | None = None
    max_output_tokens: Count | None = None
    tools: Annotated[list[FunctionTool], Field(max_length=TOOLS_MAX)] | None = None
    tool_choice: (
        Annotated[
            Annotated[ResponseToolChoice, Tag("<object>")]
            | Annotated[Literal["none", "auto", "required"], Tag("<text>")],
            by_kind('must be "none", "auto", "required" or an object'),
        ]
        | None
    ) = None
    parallel_tool_calls: bool | None = None
    text: TextOptions | None = None
    reasoning: Reasoning | None = None
    include: Annotated[list[Annotated[str, Field(max_length=100)]], Field(max_length=32)] | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=TOP_LOGPROBS_MAX), WHOLE] | None = None
    metadata: Metadata | None = None
    chat_template_kwargs: TemplateArguments | None = None

    @property
    def alternatives(self) -> int | None:
        """How many alternatives are told per token; None for no log-probabilities at all."""
        is_asked = self.top_logprobs or LOGPROBS in (self.include or ())
        return (self.top_logprobs or 0) if is_asked else None


def parse_responses_request(body: bytes) -> tuple[ResponsesRequest, dict[str, Any]]:
    """Read and check a body; the document goes back to the client in part. Raises HttpProblem 400."""
    document = read_document(body)
    refuse_unsupported(document, UNSUPPORTED)
    if isinstance(document.get("tools"), list):
        document["tools"] = [tool for tool in document["tools"] if not _is_left_out(tool)]
    request = validated(ResponsesRequest, document)
    check_least(request.min_tokens, request.max_output_tokens, "max_output_tokens")
    return request, document


def generation_of(request: ResponsesRequest) -> generation_pb2.Generation:
    """What to generate. Raises HttpProblem 400 for items, tools, or a shape that cannot be."""
    messages = messages_of(request.instructions, request.input)
    check_tools(request.tools or ())
    tools, choice = _choose(request)
    thinking = wants_thinking(request.chat_template_kwargs, request.reasoning.effort if request.reasoning else None)
    chat = chat_of(messages, tools, choice, request.parallel_tool_calls, thinking)
    constraint = _constraint_of(request.text.format if request.text else None)
    return generation_for(request, request.alternatives, request.max_output_tokens, constraint, chat=chat)


def _is_left_out(tool: Any) -> bool:
    """Whether a tool is of a kind that is run elsewhere (a search, a sandbox) or has no schema ("custom").

    It is offered, not asked for, so a model that knows nothing of it answers rightly; agents that send such tools with
    every request (Codex) could not be served otherwise. A choice that asks for one is refused, for it is not there.
    """
    return isinstance(tool, dict) and isinstance(tool.get("type"), str) and tool["type"] != "function"


def _choose(request: ResponsesRequest) -> tuple[Any, generation_pb2.ToolChoice | None]:
    """As `choose` does, with this endpoint's objects."""
    tools, choice = request.tools or (), request.tool_choice
    if not isinstance(choice, ResponseToolChoice):
        return choose(tools, choice)
    if choice.type == "function":
        if choice.name is None:
            raise wrong("tool_choice.name", "is missing")
        return tools, must_call(tools, choice.name)
    if choice.tools is None:
        raise wrong("tool_choice.tools", "is missing")
    return allow_only(tools, [tool.name for tool in choice.tools], choice.mode)


def _constraint_of(given: TextFormat | None) -> generation_pb2.Constraint | None:
    if given is None or given.type == "text":
        return None
    if given.type == "json_object":
        return generation_pb2.Constraint(json_object=generation_pb2.Constraint.JsonObject())
    for name, value in (("name", given.name), ("schema", given.schema_)):
        if value is None:
            raise wrong(f"text.format.{name}", "is missing")
    return of_schema("text.format.schema", given.schema_ or {}, given.strict)
