"""A body of /v1/chat/completions -> what is asked for and how it is told. Pure."""

from swarm_gateway.openai.chat_completions.request import generation_of, parse_chat_request
from swarm_gateway.openai.chat_completions.stream import ChatStream
from swarm_gateway.openai.chat_completions.whole import ChatWhole
from swarm_gateway.openai.reading.constraints import shape_of
from swarm_gateway.openai.reading.sampling import choices_of
from swarm_gateway.openai.replies.asked import Asked, ReplyNames, Wording


def read_chat(body: bytes) -> Asked:
    """Raises HttpProblem 400 whose param names the field."""
    request = parse_chat_request(body)
    shape = shape_of(request)
    with_logprobs = request.alternatives is not None

    def word(names: ReplyNames) -> Wording:
        if request.stream:
            return ChatStream(names, request.include_usage, with_logprobs)
        return ChatWhole(names, request.choice_count, with_logprobs)

    return Asked(
        model=request.model,
        is_streamed=bool(request.stream),
        id_prefix="chatcmpl-",
        generations=choices_of(generation_of(request, shape), request.choice_count),
        word=word,
        params={"constraint": shape.param} if shape else {},
    )
