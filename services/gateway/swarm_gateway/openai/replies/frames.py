"""A stream's events as bytes. What every chunk of a reply repeats is written once. Pure."""

import json

from swarm_gateway.openai.replies.asked import Document
from swarm_gateway.sse import escape_line_ends, framed

DONE = framed("[DONE]")
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def event_of(document: Document, event: str = "") -> bytes:
    """One document as an event."""
    return framed(_ENCODER.encode(document), event)


def body_of(document: Document) -> bytes:
    """One document as a body."""
    return _ENCODER.encode(document).encode()


class TextFrames:
    """Chunks that differ in one text only: the JSON of a chunk without building it a thousand times.

    empty: the chunk with "" for its text. key: the text's. The key with "" must be in it once, outside of texts, where
    its quotes would be escaped.
    """

    def __init__(self, empty: Document, key: str) -> None:
        before, _, after = framed(_ENCODER.encode(empty)).partition(f'"{key}":""'.encode())
        self._before = before + f'"{key}":'.encode()
        self._after = after

    def frame(self, text: str) -> bytes:
        """More text, as an event."""
        return self._before + escape_line_ends(_ENCODER.encode(text)).encode() + self._after
