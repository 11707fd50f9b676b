"""Calls of tools in a reply: their ids, and a call put together from its pieces. Pure."""

import hashlib
from dataclasses import dataclass, field

from swarm_gateway.openai.replies.asked import Batch


def call_id(completion_id: str, choice: int, index: int) -> str:
    """ "call_" and 24 letters; the same whenever the same reply is told, and unique among replies."""
    return f"call_{hashlib.sha256(f'{completion_id}/{choice}/{index}'.encode()).hexdigest()[:24]}"


@dataclass
class Call:
    """One call so far."""

    name: str
    arguments: list[str] = field(default_factory=list)


class Calls:
    """The calls of one choice, in the order of their first pieces."""

    def __init__(self) -> None:
        self.by_index: dict[int, Call] = {}

    def take(self, batch: Batch) -> None:
        """More of them."""
        for delta in batch.tool_calls:
            call = self.by_index.setdefault(delta.index, Call(delta.name))
            if delta.arguments:
                call.arguments.append(delta.arguments)
