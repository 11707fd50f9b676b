"""A chat request as it arrives: what is read, what is refused, what is ignored. Makes nothing of it.

Unknown fields are ignored, as OpenAI's own clients expect. Known fields that cannot be honoured yet are refused unless
they hold their default, so that nobody is answered by another rule than the one they asked for.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic_core import PydanticCustomError, from_json

from swarm_gateway.openai.history import check_history
from swarm_gateway.openai.messages import Message
from swarm_gateway.problems import HttpProblem, bad_request

STOPS_MAX = 4
_INT32_MAX = 2**31 - 1
Count = Annotated[int, Field(ge=1, le=_INT32_MAX)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]

# Known, not supported yet: the values that ask for nothing. null always does.
_DEFAULTS: Mapping[str, tuple[object, ...]] = {
    "audio": (),
    "frequency_penalty": (0,),
    "function_call": ("none", "auto"),
    "functions": ([],),
    "logit_bias": ({},),
    "logprobs": (False,),
    "modalities": (["text"], []),
    "prediction": (),
    "presence_penalty": (0,),
    "repetition_penalty": (1,),
    "response_format": ({"type": "text"},),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "top_logprobs": (0,),
    "web_search_options": (),
}


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)


class StreamOptions(_Strict):
    """What a stream carries beside text."""

    include_usage: bool | None = None


class TemplateArguments(_Strict):
    """Arguments of the model's chat template; others than these are not passed on."""

    enable_thinking: bool | None = None


class ChatRequest(_Strict):
    """POST /v1/chat/completions. Absent sampling fields take the model's own defaults; top_p 0 is greedy."""

    model: Annotated[str, Field(min_length=1, max_length=512)]
    messages: Annotated[list[Message], Field(min_length=1)]
    temperature: Annotated[float, Field(ge=0, le=2, allow_inf_nan=False)] | None = None
    top_p: Share | None = None
    top_k: Annotated[int, Field(ge=0, le=_INT32_MAX)] | None = None
    min_p: Share | None = None
    seed: Annotated[int, Field(ge=-(2**63), le=2**63 - 1)] | None = None
    stop: list[str] | None = None
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    n: Literal[1] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    chat_template_kwargs: TemplateArguments | None = None
    # Extensions, as other servers spell them; OpenAI's own clients send them from `extra_body`.
    ignore_eos: bool | None = None
    min_tokens: Annotated[int, Field(ge=0, le=_INT32_MAX)] | None = None

    @field_validator("stop", mode="before")
    @classmethod
    def _one_or_more(cls, stop: Any) -> Any:
        stops = [stop] if isinstance(stop, str) else stop
        if isinstance(stops, list) and len(stops) > STOPS_MAX:
            raise PydanticCustomError("stops", "at most {most} texts are allowed", {"most": STOPS_MAX})
        if isinstance(stops, list) and "" in stops:
            raise PydanticCustomError("stops", "a stop text must not be empty")
        return stops

    @field_validator("n", mode="before")
    @classmethod
    def _one_choice(cls, n: Any) -> Any:
        if n is None or (n == 1 and type(n) is int):
            return n
        raise PydanticCustomError("choices", "n must be 1 for now")

    @property
    def new_tokens_max(self) -> int | None:
        """The limit that counts: max_completion_tokens before the older max_tokens."""
        return self.max_completion_tokens if self.max_completion_tokens is not None else self.max_tokens

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with a chunk of counts."""
        return bool(self.stream_options and self.stream_options.include_usage)


def parse_chat_request(body: bytes) -> ChatRequest:
    """Read and check a body. Raises HttpProblem 400 whose param names the field."""
    try:
        document = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise bad_request(f"the body is not valid JSON: {error}", code="invalid_json") from None
    if not isinstance(document, dict):
        raise bad_request("the body must be a JSON object", code="invalid_json")
    _refuse_unsupported(document)
    try:
        request = ChatRequest.model_validate(document)
    except ValidationError as error:
        raise _first_problem(error) from None
    _check_least(request)
    check_history(request.messages)
    return request


def _check_least(request: ChatRequest) -> None:
    least, most = request.min_tokens or 0, request.new_tokens_max
    if most is not None and least > most:
        words = f"min_tokens: {least} is more than the most tokens asked for, {most}"
        raise bad_request(words, param="min_tokens", code="invalid_value")


def _refuse_unsupported(document: Mapping[str, Any]) -> None:
    for name, defaults in _DEFAULTS.items():
        value = document.get(name)
        if value is None or any(_same(value, default) for default in defaults):
            continue
        raise bad_request(f"{name} is not supported yet", param=name, code="unsupported_parameter")


def _same(value: object, default: object) -> bool:
    """Equality as JSON has it: false is not 0, but 0.0 is."""
    return isinstance(value, bool) == isinstance(default, bool) and value == default


def _first_problem(error: ValidationError) -> HttpProblem:
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    param = ""
    for part in first["loc"]:
        param += f"[{part}]" if isinstance(part, int) else f".{part}" if param else str(part)
    code = "missing_required_parameter" if first["type"] == "missing" else "invalid_value"
    return bad_request(f"{param}: {first['msg']}", param=param, code=code)
