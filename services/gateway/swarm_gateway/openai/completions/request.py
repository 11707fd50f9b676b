"""A request for plain completions as it arrives, and what is to be generated. Pure."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import Discriminator, Field, Tag, WithJsonSchema, field_validator
from silentswarm.core.v1 import generation_pb2

from swarm_gateway.openai.reading.constraints import ConstraintFields, Shape
from swarm_gateway.openai.reading.documents import read_document
from swarm_gateway.openai.reading.fields import (
    WHOLE,
    ModelId,
    kind_of,
    refuse_unsupported,
    unsupported,
    validated,
    wrong,
)
from swarm_gateway.openai.reading.generations import generation_for
from swarm_gateway.openai.reading.sampling import (
    CHOICES_MAX,
    OTHERS_FIELDS,
    SamplingFields,
    check_least,
    choices_of,
)

NEW_TOKENS_DEFAULT = 16  # OpenAI's, for this endpoint
GENERATIONS_MAX = 32  # prompts times choices
ALTERNATIVES_MAX = 5
UNSUPPORTED: Mapping[str, tuple[object, ...]] = {
    **OTHERS_FIELDS,
    "prompt_embeds": (),
    "suffix": ("",),
}
Text = Annotated[str, Field(min_length=1)]
Ids = Annotated[list[Annotated[int, Field(ge=0, le=2**32 - 1)]], Field(min_length=1)]
_TOLD = {
    "oneOf": [
        {"type": "string", "minLength": 1},
        {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1, "maxItems": GENERATIONS_MAX},
        {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1},
        {
            "type": "array",
            "items": {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1},
            "minItems": 1,
            "maxItems": GENERATIONS_MAX,
        },
    ]
}


def _kind_of_prompts(prompts: object) -> str | None:
    return kind_of(prompts[0]) if isinstance(prompts, list) and prompts else None


class CompletionRequest(SamplingFields, ConstraintFields):
    """POST /v1/completions. prompt: one or several, as texts or as token ids."""

    model: ModelId
    prompt: Annotated[
        Annotated[list[Text], Tag("<text>")] | Annotated[list[Ids], Tag("<array>")],
        Discriminator(
            _kind_of_prompts,
            custom_error_type="kind",
            custom_error_message="must be a text, token ids, or a list of either",
        ),
        WithJsonSchema(_TOLD),
    ]
    echo: bool | None = None
    logprobs: Annotated[int, Field(ge=0, le=ALTERNATIVES_MAX), WHOLE] | None = None
    best_of: Annotated[int, Field(ge=1, le=CHOICES_MAX), WHOLE] | None = None

    @field_validator("prompt", mode="before")
    @classmethod
    def _one_or_more_prompts(cls, prompt: object) -> object:
        is_ids = isinstance(prompt, list) and prompt and type(prompt[0]) is int
        return [prompt] if isinstance(prompt, str) or is_ids else prompt


def parse_completion_request(body: bytes) -> CompletionRequest:
    """Read and check a body. Raises HttpProblem 400 whose param names the field."""
    document = read_document(body)
    refuse_unsupported(document, UNSUPPORTED)
    request = validated(CompletionRequest, document)
    check_least(request.min_tokens, request.max_tokens, "max_tokens")
    if request.best_of is not None and request.best_of > request.choice_count:
        raise unsupported("best_of", "above n is not supported")
    if request.best_of is not None and request.best_of < request.choice_count:
        raise wrong("best_of", f"{request.best_of} is less than n, {request.choice_count}")
    if len(request.prompt) * request.choice_count > GENERATIONS_MAX:
        words = (
            f"{len(request.prompt)} prompts with {request.choice_count} choices each are more than {GENERATIONS_MAX}"
        )
        raise wrong("prompt", words)
    if request.echo and not isinstance(request.prompt[0], str):
        raise unsupported("echo", "of token ids is not supported: their text is not known here")
    if request.echo and request.logprobs is not None:
        raise unsupported("echo", "with logprobs is not supported: prompts have no log-probabilities")
    return request


def generations_of(request: CompletionRequest, shape: Shape | None) -> tuple[generation_pb2.Generation, ...]:
    """What to generate: the choices of the first prompt, then of the next."""
    new_tokens_max = request.max_tokens or max(NEW_TOKENS_DEFAULT, request.min_tokens or 0)
    constraint = shape.constraint if shape else None
    made: list[generation_pb2.Generation] = []
    for prompt in request.prompt:
        given = {"prompt": prompt} if isinstance(prompt, str) else {"prompt_ids": {"ids": prompt}}
        generation = generation_for(request, request.logprobs, new_tokens_max, constraint, **given)
        made += choices_of(generation, request.choice_count)
    return tuple(made)
