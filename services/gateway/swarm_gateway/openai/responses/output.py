"""The items of a response while they grow: what each is now, and the events that tell of it. Pure."""

from collections.abc import Iterator, Sequence
from typing import Any

from swarm_gateway.openai.replies.asked import Document

# An event: its type and its fields, all but those every event has.
Told = tuple[str, Document]


class TextItem:
    """A message, or what was thought before it: one part of text."""

    def __init__(self, item_id: str, output_index: int, is_reasoning: bool) -> None:
        self.is_reasoning = is_reasoning
        self._where = {"item_id": item_id, "output_index": output_index, "content_index": 0}
        self._item_id = item_id
        self._index = output_index
        self._texts: list[str] = []
        self._logprobs: list[Any] = []
        self._event = "response.reasoning_text" if is_reasoning else "response.output_text"

    def open(self) -> Iterator[Told]:
        """It begins."""
        yield "response.output_item.added", {"output_index": self._index, "item": self._document([], "in_progress")}
        yield "response.content_part.added", {**self._where, "part": self._part("", [])}

    def grow(self, text: str, logprobs: Sequence[Any] = ()) -> Told:
        """More of it."""
        self._texts.append(text)
        self._logprobs.extend(logprobs)
        fields = {**self._where, "delta": text}
        return f"{self._event}.delta", fields if self.is_reasoning else {**fields, "logprobs": list(logprobs)}

    def close(self, status: str) -> Iterator[Told]:
        """It is complete, or as complete as it gets."""
        text = "".join(self._texts)
        fields = {**self._where, "text": text}
        yield f"{self._event}.done", fields if self.is_reasoning else {**fields, "logprobs": self._logprobs}
        yield "response.content_part.done", {**self._where, "part": self._part(text, self._logprobs)}
        yield "response.output_item.done", {"output_index": self._index, "item": self.document(status)}

    def document(self, status: str) -> Document:
        """The item as it is now."""
        return self._document([self._part("".join(self._texts), self._logprobs)], status)

    def _document(self, content: list[Document], status: str) -> Document:
        if self.is_reasoning:
            return {"id": self._item_id, "type": "reasoning", "summary": [], "content": content, "status": status}
        return {"id": self._item_id, "type": "message", "status": status, "role": "assistant", "content": content}

    def _part(self, text: str, logprobs: Sequence[Any]) -> Document:
        if self.is_reasoning:
            return {"type": "reasoning_text", "text": text}
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": list(logprobs)}


class CallItem:
    """A call of a function."""

    def __init__(self, item_id: str, output_index: int, call_id: str, name: str) -> None:
        self._item_id = item_id
        self._index = output_index
        self._call_id = call_id
        self._name = name
        self._arguments: list[str] = []

    def open(self) -> Iterator[Told]:
        """It begins."""
        yield "response.output_item.added", {"output_index": self._index, "item": self.document("in_progress")}

    def grow(self, arguments: str) -> Told:
        """More of its arguments."""
        self._arguments.append(arguments)
        where = {"item_id": self._item_id, "output_index": self._index}
        return "response.function_call_arguments.delta", {**where, "delta": arguments}

    def close(self, status: str) -> Iterator[Told]:
        """It is complete, or as complete as it gets."""
        where = {"item_id": self._item_id, "output_index": self._index}
        arguments = "".join(self._arguments)
        yield "response.function_call_arguments.done", {**where, "name": self._name, "arguments": arguments}
        yield "response.output_item.done", {"output_index": self._index, "item": self.document(status)}

    def document(self, status: str) -> Document:
        """The item as it is now."""
        return {
            "id": self._item_id,
            "type": "function_call",
            "status": status,
            "arguments": "".join(self._arguments),
            "call_id": self._call_id,
            "name": self._name,
        }
