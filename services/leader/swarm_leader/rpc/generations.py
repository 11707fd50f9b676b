"""Whether a core.v1.Generation makes sense. Checks shape and ranges only; the model's own limits are flows'."""

import math
import re
from collections.abc import Sequence

from silentswarm.core.v1 import generation_pb2
from swarm_core.errors import BadRequest
from swarm_rpc.limits import MESSAGE_BYTES_MAX

from swarm_leader.domain.callers import CALLER_FORM, is_caller
from swarm_leader.rpc.generation_shapes import check_calls, check_constraint, check_tools

STOPS_MAX = 16
STOP_CHARACTERS_MAX = 256
BIASES_MAX = 1024
TOP_LOGPROBS_MAX = 20
# A request goes on to a fellow and a stage in messages of this size; one that is larger would end their links, and with
# them every other reply. The margin is for the ids it travels with.
GENERATION_BYTES_MAX = MESSAGE_BYTES_MAX - 64 * 2**10
_FIELDS = {"chat": "messages", "prompt": "prompt", "prompt_ids": "prompt_ids"}
_RANGES = {
    "temperature": (0.0, 100.0),
    "top_p": (0.0, 1.0),
    "min_p": (0.0, 1.0),
    "frequency_penalty": (-2.0, 2.0),
    "presence_penalty": (-2.0, 2.0),
    "top_logprobs": (0, TOP_LOGPROBS_MAX),
}
SEQUENCE_END = 2**53  # what JSON can still say exactly
ROLES = ("system", "user", "assistant", "tool")
_REQUEST_ID = re.compile(r"^[A-Za-z0-9_-]{1,64}$")


def check_request_id(request_id: str) -> str:
    """The id as given; "" is for the leader to choose. Raises BadRequest."""
    if request_id and not _REQUEST_ID.fullmatch(request_id):
        raise BadRequest('a request_id has 1..64 letters, digits, "-" or "_"', field="request_id")
    return request_id


def check_generation(generation: generation_pb2.Generation) -> generation_pb2.Generation:
    """The same generation when it can be asked of a model. Raises BadRequest that names the field."""
    _check_size(generation)
    if generation.caller and not is_caller(generation.caller):
        raise BadRequest(f"a caller has {CALLER_FORM}, or is empty", field="caller")
    _check_input(generation)
    _check_sampling(generation.sampling)
    if generation.HasField("resume"):
        _check_resume(generation)
    if generation.HasField("constraint"):
        check_constraint(generation.constraint)
    if generation.HasField("new_tokens_max") and generation.new_tokens_max < 1:
        raise BadRequest("new_tokens_max is 0; ask for at least 1 token", field="new_tokens_max")
    if len(generation.stop) > STOPS_MAX:
        raise BadRequest(f"{len(generation.stop)} stop texts are more than {STOPS_MAX}", field="stop")
    for stop in generation.stop:
        if not 0 < len(stop) <= STOP_CHARACTERS_MAX:
            raise BadRequest(f"a stop text has 1..{STOP_CHARACTERS_MAX} characters, one has {len(stop)}", field="stop")
    return generation


def _check_size(generation: generation_pb2.Generation) -> None:
    size_bytes = generation.ByteSize()
    if size_bytes > GENERATION_BYTES_MAX:
        raise BadRequest(
            f"the request has {size_bytes:,} bytes, more than the {GENERATION_BYTES_MAX:,} that one reply takes",
            field=_FIELDS.get(generation.WhichOneof("input") or "", "input"),
            size_bytes=size_bytes,
            size_bytes_max=GENERATION_BYTES_MAX,
        )


def _check_input(generation: generation_pb2.Generation) -> None:
    given = generation.WhichOneof("input")
    if given is None:
        raise BadRequest("there is no input; give chat messages, a prompt or token ids", field="input")
    if given == "chat":
        if not generation.chat.messages:
            raise BadRequest("messages is empty; give at least one", field="messages")
        for index, message in enumerate(generation.chat.messages):
            if message.role not in ROLES:
                raise BadRequest(
                    f"messages[{index}].role is {message.role!r}; use {', '.join(ROLES)}",
                    field=f"messages[{index}].role",
                )
            check_calls(index, message)
        check_tools(generation.chat)
    elif given == "prompt" and not generation.prompt:
        raise BadRequest("the prompt is empty", field="prompt")
    elif given == "prompt_ids" and not generation.prompt_ids.ids:
        raise BadRequest("prompt_ids is empty; give at least one token", field="prompt_ids")


def _check_sampling(sampling: generation_pb2.Sampling) -> None:
    for field, (low, high) in _RANGES.items():
        number = getattr(sampling, field)
        if sampling.HasField(field) and not (math.isfinite(number) and low <= number <= high):
            raise BadRequest(f"{field} is {number:g}; it must be in {low:g}..{high:g}", field=field)
    if sampling.HasField("top_p") and sampling.top_p == 0:
        raise BadRequest("top_p is 0, which leaves no token; use a small number, or temperature 0", field="top_p")
    if sampling.HasField("repetition_penalty") and not 0 < sampling.repetition_penalty < math.inf:
        wrong = f"repetition_penalty is {sampling.repetition_penalty:g}; it must be above 0, where 1 is none"
        raise BadRequest(wrong, field="repetition_penalty")
    _check_biases(sampling.logit_bias)


def _check_resume(generation: generation_pb2.Generation) -> None:
    """What a caller can have of a reply. Each event of tokens has one at least, and Started comes before them."""
    resume = generation.resume
    if not 0 <= resume.sequence < SEQUENCE_END:
        raise BadRequest(f"resume.sequence is {resume.sequence}, which no reply reaches", field="resume")
    if (resume.ids or resume.is_flushed) and resume.sequence < 2:
        raise BadRequest(f"resume has tokens, but ends with event {resume.sequence}", field="resume")
    if resume.sequence and not generation.sampling.HasField("seed"):
        raise BadRequest("a reply goes on with the seed it began with; give sampling.seed", field="sampling.seed")


def _check_biases(biases: Sequence[generation_pb2.LogitBias]) -> None:
    """Which tokens a model has is flows' to say."""
    if len(biases) > BIASES_MAX:
        raise BadRequest(f"logit_bias has {len(biases)} tokens, more than {BIASES_MAX}", field="logit_bias")
    for bias in biases:
        if not -100 <= bias.bias <= 100:
            wrong = f"logit_bias of token {bias.token} is {bias.bias:g}; it must be in -100..100"
            raise BadRequest(wrong, field="logit_bias")
    if len({bias.token for bias in biases}) < len(biases):
        raise BadRequest("logit_bias names a token twice", field="logit_bias")
