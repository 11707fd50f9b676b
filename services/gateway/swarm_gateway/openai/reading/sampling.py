"""The sampling fields that chat and plain completions share, and what they become. Pure."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, WithJsonSchema, field_validator
from silentswarm.core.v1 import generation_pb2

from swarm_gateway.openai.reading.fields import (
    INT32_MAX,
    WHOLE,
    Count,
    Penalty,
    Share,
    StreamOptions,
    Strict,
    Temperature,
    problem_in_value,
    wrong,
)

STOPS_MAX = 4
STOP_CHARACTERS_MAX = 256
BIASES_MAX = 1024
TOP_LOGPROBS_MAX = 20
CHOICES_MAX = 8  # replies to one request; each is a generation of its own
_SEED_STEP = 0x9E3779B97F4A7C15  # odd, so that no two choices of a request share a seed
# Of other servers, and none of ours: each would change what is generated or how it is told. With what asks for nothing.
OTHERS_FIELDS: Mapping[str, tuple[object, ...]] = {
    "add_special_tokens": (True,),
    "allowed_token_ids": ([],),
    "bad_words": ([],),
    "include_stop_str_in_output": (False,),
    "length_penalty": (1,),
    "prompt_logprobs": (),
    "skip_special_tokens": (True,),
    "spaces_between_special_tokens": (True,),
    "stop_token_ids": ([],),
    "truncate_prompt_tokens": (),
    "typical_p": (1,),
    "use_beam_search": (False,),
}
TokenId = Annotated[str, Field(pattern=r"^(0|[1-9][0-9]{0,9})$")]
Bias = Annotated[float, Field(ge=-100, le=100, allow_inf_nan=False)]
_STOPS = {
    "oneOf": [
        {"type": "string", "minLength": 1, "maxLength": STOP_CHARACTERS_MAX},
        {
            "type": "array",
            "items": {"type": "string", "minLength": 1, "maxLength": STOP_CHARACTERS_MAX},
            "maxItems": STOPS_MAX,
        },
    ]
}
Stop = Annotated[str, Field(min_length=1, max_length=STOP_CHARACTERS_MAX)]


class DrawingFields(Strict):
    """How tokens are drawn and when a reply ends. Absent fields take the model's own defaults; top_p 0 is greedy."""

    temperature: Temperature | None = None
    top_p: Share | None = None
    frequency_penalty: Penalty | None = None
    presence_penalty: Penalty | None = None
    seed: Annotated[int, Field(ge=-(2**63), le=2**63 - 1), WHOLE] | None = None
    logit_bias: Annotated[dict[TokenId, Bias], Field(max_length=BIASES_MAX)] | None = None
    stop: Annotated[list[Stop], Field(max_length=STOPS_MAX), WithJsonSchema(_STOPS)] | None = None
    stream: bool | None = None
    # Extensions, as other servers spell them; OpenAI's own clients send them from `extra_body`.
    top_k: Annotated[int, Field(ge=-1, le=INT32_MAX), WHOLE] | None = None
    min_p: Share | None = None
    repetition_penalty: Annotated[float, Field(ge=0.01, le=100, allow_inf_nan=False)] | None = None
    ignore_eos: bool | None = None
    min_tokens: Annotated[int, Field(ge=0, le=INT32_MAX), WHOLE] | None = None

    @field_validator("stop", mode="before")
    @classmethod
    def _one_or_more_stops(cls, stop: object) -> object:
        return [stop] if isinstance(stop, str) else stop

    @field_validator("logit_bias", mode="after")
    @classmethod
    def _ids_are_32_bits(cls, bias: dict[str, float] | None) -> dict[str, float] | None:
        if any(int(token) >= 2**32 for token in bias or ()):
            raise problem_in_value("a token id is below 2^32")
        return bias


class SamplingFields(DrawingFields):
    """Those, and what chat and plain completions have besides."""

    max_tokens: Count | None = None
    n: Annotated[int, Field(ge=1, le=CHOICES_MAX), WHOLE] | None = None
    stream_options: StreamOptions | None = None

    @property
    def choice_count(self) -> int:
        """How many replies are asked for."""
        return self.n or 1

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with a chunk of counts."""
        return bool(self.stream_options and self.stream_options.include_usage)


def sampling_of(fields: DrawingFields, top_logprobs: int | None = None) -> generation_pb2.Sampling:
    """How tokens are drawn. top_logprobs: alternatives per token; None for no log-probabilities at all."""
    sampling = generation_pb2.Sampling(
        temperature=fields.temperature,
        top_p=fields.top_p,
        top_k=None if fields.top_k is None else max(0, fields.top_k),  # -1 is "all" to some clients
        min_p=fields.min_p,
        # Any number names a seed; negative ones keep their bits.
        seed=None if fields.seed is None else fields.seed % 2**64,
        # Nothing where nothing is asked for, so that stages without these are asked too.
        frequency_penalty=fields.frequency_penalty or None,
        presence_penalty=fields.presence_penalty or None,
        repetition_penalty=None if fields.repetition_penalty == 1 else fields.repetition_penalty,
        logit_bias=[generation_pb2.LogitBias(token=int(token), bias=bias) for token, bias in biases_of(fields)],
        top_logprobs=top_logprobs,
    )
    if sampling.HasField("top_p") and sampling.top_p == 0:
        # No probability mass leaves the best token alone. Asked after the rounding to 32 bits.
        sampling.ClearField("top_p")
        sampling.temperature = 0
    return sampling


def biases_of(fields: DrawingFields) -> list[tuple[str, float]]:
    """The biases that are some."""
    return [(token, bias) for token, bias in (fields.logit_bias or {}).items() if bias]


def choices_of(generation: generation_pb2.Generation, count: int) -> tuple[generation_pb2.Generation, ...]:
    """The same generation `count` times. The first is as given; the others draw by seeds made from its seed, if any."""
    choices = []
    for at in range(count):
        choice = generation_pb2.Generation()
        choice.CopyFrom(generation)
        if at and choice.sampling.HasField("seed"):
            choice.sampling.seed = (choice.sampling.seed + at * _SEED_STEP) % 2**64
        choices.append(choice)
    return tuple(choices)


def check_least(least: int | None, most: int | None, most_name: str) -> None:
    """Raises HttpProblem when more tokens are asked for at least than at most. most_name: the field that says so."""
    if least and most is not None and least > most:
        raise wrong("min_tokens", f"{least} is more than {most_name}, {most}")
