"""A body of /v1/responses -> what is asked for and how it is told. Pure."""

from swarm_gateway.openai.replies.asked import Asked, ReplyNames, Wording
from swarm_gateway.openai.responses.documents import ResponseDocument
from swarm_gateway.openai.responses.request import generation_of, parse_responses_request
from swarm_gateway.openai.responses.wording import ResponseWording


def read_response(body: bytes) -> Asked:
    """Raises HttpProblem 400 whose param names the field."""
    request, document = parse_responses_request(body)
    generation = generation_of(request)

    def word(names: ReplyNames) -> Wording:
        return ResponseWording(
            names,
            ResponseDocument(names, request, document),
            is_streamed=bool(request.stream),
            with_logprobs=request.alternatives is not None,
        )

    return Asked(
        model=request.model,
        is_streamed=bool(request.stream),
        id_prefix="resp_",
        generations=(generation,),
        word=word,
        params={
            "messages": "input",
            "new_tokens_max": "max_output_tokens",
            "constraint": "text.format",
        },
    )
