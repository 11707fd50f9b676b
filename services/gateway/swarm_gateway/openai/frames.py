"""A chat stream's events as bytes. What every chunk of a reply repeats is written once. Pure."""

import json
from typing import Any

from swarm_gateway.openai import shapes
from swarm_gateway.sse import escape_line_ends, framed

DONE = framed("[DONE]")
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
# Cannot stand inside a JSON text, where its quotes would be escaped.
_NO_TEXT = '"content":""'


def event_of(document: shapes.Document) -> bytes:
    """One document as an event."""
    return framed(_ENCODER.encode(document))


class TextFrames:
    """Text chunks of one reply: the JSON of shapes.text_chunk without building it a thousand times."""

    def __init__(self, names: shapes.ReplyNames, with_usage: bool) -> None:
        chunk: dict[str, Any] = shapes.text_chunk(names, "", with_usage)
        before, _, after = framed(_ENCODER.encode(chunk)).partition(_NO_TEXT.encode())
        self._before = before + b'"content":'
        self._after = after

    def frame(self, text: str) -> bytes:
        """More text, as an event."""
        return self._before + escape_line_ends(_ENCODER.encode(text)).encode() + self._after
