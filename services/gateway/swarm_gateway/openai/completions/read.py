"""A body of /v1/completions -> what is asked for and how it is told. Pure."""

from swarm_gateway.openai.completions.request import generations_of, parse_completion_request
from swarm_gateway.openai.completions.wording import CompletionStream, CompletionWhole
from swarm_gateway.openai.reading.constraints import shape_of
from swarm_gateway.openai.replies.asked import Asked, ReplyNames, Wording


def read_completion(body: bytes) -> Asked:
    """Raises HttpProblem 400 whose param names the field."""
    request = parse_completion_request(body)
    shape = shape_of(request)
    shape_params = {"constraint": shape.param} if shape else {}

    def word(names: ReplyNames) -> Wording:
        return CompletionStream(names, request) if request.stream else CompletionWhole(names, request)

    return Asked(
        model=request.model,
        is_streamed=bool(request.stream),
        id_prefix="cmpl-",
        generations=generations_of(request, shape),
        word=word,
        params={"messages": "prompt", "input": "prompt", **shape_params},
    )
