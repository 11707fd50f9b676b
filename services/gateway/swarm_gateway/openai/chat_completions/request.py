"""A chat request as it arrives: what is read, what is refused, what is ignored, and what is to be generated. Pure.

Unknown fields are ignored, as OpenAI's own clients expect. Known fields that cannot be honoured are refused unless they
hold their default, so that nobody is answered by another rule than the one they asked for.
"""

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field
from silentswarm.core.v1 import generation_pb2

from swarm_gateway.openai.reading.constraints import ConstraintFields, Shape
from swarm_gateway.openai.reading.documents import read_document
from swarm_gateway.openai.reading.fields import WHOLE, Count, ModelId, refuse_unsupported, validated, wrong
from swarm_gateway.openai.reading.generations import chat_of, generation_for
from swarm_gateway.openai.reading.history import check_history
from swarm_gateway.openai.reading.messages import MESSAGES_MAX, Message
from swarm_gateway.openai.reading.sampling import OTHERS_FIELDS, TOP_LOGPROBS_MAX, SamplingFields, check_least
from swarm_gateway.openai.reading.thinking import Effort, TemplateArguments, wants_thinking
from swarm_gateway.openai.reading.tools import ToolFields, check_tools, choose

# Known, not supported: the values that ask for nothing. null always does.
UNSUPPORTED: Mapping[str, tuple[object, ...]] = {
    **OTHERS_FIELDS,
    "add_generation_prompt": (True,),
    "audio": (),
    "best_of": (1,),
    "chat_template": (),  # a program from outside is never run
    "continue_final_message": (False,),
    "documents": ([],),
    "echo": (False,),
    "function_call": ("none", "auto"),
    "functions": ([],),
    "modalities": (["text"], []),
    "prediction": (),
    "suffix": (),
    "web_search_options": (),
}


class ChatRequest(SamplingFields, ConstraintFields, ToolFields):
    """POST /v1/chat/completions."""

    model: ModelId
    messages: Annotated[list[Message], Field(min_length=1, max_length=MESSAGES_MAX)]
    max_completion_tokens: Count | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=TOP_LOGPROBS_MAX), WHOLE] | None = None
    reasoning_effort: Effort | None = None
    chat_template_kwargs: TemplateArguments | None = None

    @property
    def new_tokens_max(self) -> int | None:
        """The limit that counts: max_completion_tokens before the older max_tokens."""
        return self.max_completion_tokens if self.max_completion_tokens is not None else self.max_tokens

    @property
    def alternatives(self) -> int | None:
        """How many alternatives are told per token; None for no log-probabilities at all."""
        return (self.top_logprobs or 0) if self.logprobs else None


def parse_chat_request(body: bytes) -> ChatRequest:
    """Read and check a body. Raises HttpProblem 400 whose param names the field."""
    document = read_document(body)
    refuse_unsupported(document, UNSUPPORTED)
    request = validated(ChatRequest, document)
    check_least(request.min_tokens, request.new_tokens_max, "the most tokens asked for")
    if request.top_logprobs and not request.logprobs:
        raise wrong("top_logprobs", "are told only with logprobs: true")
    check_history(request.messages)
    return request


def generation_of(request: ChatRequest, shape: Shape | None = None) -> generation_pb2.Generation:
    """What to generate. shape: of the text.

    Raises HttpProblem 400 for tools, or a choice among them, that cannot be.
    """
    functions = [tool.function for tool in request.tools or ()]
    check_tools(functions)
    tools, choice = choose(functions, request.tool_choice)
    thinking = wants_thinking(request.chat_template_kwargs, request.reasoning_effort)
    chat = chat_of(request.messages, tools, choice, request.parallel_tool_calls, thinking)
    constraint = shape.constraint if shape else None
    return generation_for(request, request.alternatives, request.new_tokens_max, constraint, chat=chat)
