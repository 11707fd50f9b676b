"""Whether the messages of a request make a conversation. Pure."""

from collections.abc import Sequence

from swarm_gateway.openai.reading.messages import Message
from swarm_gateway.problems import bad_request


def check_history(messages: Sequence[Message]) -> None:
    """Every tool call answered, every answer asked for, every text there, and something to reply to at the end.

    Raises HttpProblem 400 with param "messages".
    """
    unanswered: set[str] = set()
    for at, message in enumerate(messages):
        if message.role == "tool":
            if message.tool_call_id not in unanswered:
                raise _wrong(f"messages[{at}] answers tool call {message.tool_call_id!r}, which nobody made")
            unanswered.discard(message.tool_call_id)
        elif unanswered:
            raise _wrong(f"messages[{at}] comes before the answer to tool call {min(unanswered)!r}")
        if message.tool_calls:
            if message.role != "assistant":
                raise _wrong(f"messages[{at}]: only an assistant calls tools")
            unanswered = {call.id for call in message.tool_calls}
            if len(unanswered) < len(message.tool_calls):
                raise _wrong(f"messages[{at}]: two tool calls have one id")
        elif message.content is None:
            raise _wrong(f"messages[{at}]: content is missing")
    if unanswered:
        raise _wrong(f"tool call {min(unanswered)!r} is not answered")
    if not messages[-1].content and messages[-1].role != "tool":  # a tool may well have nothing to say
        raise _wrong("the last message has no content to reply to")


def _wrong(message: str) -> Exception:
    return bad_request(message, param="messages", code="invalid_value")
