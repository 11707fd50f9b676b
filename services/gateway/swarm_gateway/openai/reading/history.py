"""Whether the messages of a request make a conversation. Pure."""

from collections.abc import Sequence

from swarm_gateway.openai.reading.messages import Message
from swarm_gateway.problems import bad_request


def check_history(messages: Sequence[Message], param: str = "messages", places: Sequence[str] = ()) -> None:
    """Every tool call answered, every answer asked for, every text there, and something to reply to at the end.

    param: the field they are in. places: what each is called in it, when not param[index]. Raises HttpProblem 400.
    """
    unanswered: set[str] = set()
    for at, message in enumerate(messages):
        place = places[at] if places else f"{param}[{at}]"
        if message.role == "tool":
            if message.tool_call_id not in unanswered:
                raise _wrong(param, f"{place} answers tool call {message.tool_call_id!r}, which nobody made")
            unanswered.discard(message.tool_call_id)
        elif unanswered:
            raise _wrong(param, f"{place} comes before the answer to tool call {min(unanswered)!r}")
        if message.tool_calls:
            if message.role != "assistant":
                raise _wrong(param, f"{place}: only an assistant calls tools")
            unanswered = {call.id for call in message.tool_calls}
            if len(unanswered) < len(message.tool_calls):
                raise _wrong(param, f"{place}: two tool calls have one id")
        elif message.content is None:
            raise _wrong(param, f"{place}: content is missing")
    if unanswered:
        raise _wrong(param, f"tool call {min(unanswered)!r} is not answered")
    if not messages[-1].content and messages[-1].role != "tool":  # a tool may well have nothing to say
        raise _wrong(param, "the last message has no content to reply to")


def _wrong(param: str, message: str) -> Exception:
    return bad_request(message, param=param, code="invalid_value")
