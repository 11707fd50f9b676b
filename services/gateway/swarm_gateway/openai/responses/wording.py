"""A response as it comes, in the events clients wait for; or as one document. The items are the same both ways."""

from collections.abc import Iterable
from typing import Any

from silentswarm.core.v1 import generation_pb2

from swarm_gateway.openai.replies.asked import Batch, Document, Done, ReplyNames
from swarm_gateway.openai.replies.calls import call_id
from swarm_gateway.openai.replies.frames import body_of, event_of
from swarm_gateway.openai.replies.logprobs import content_logprobs
from swarm_gateway.openai.responses.documents import ResponseDocument, item_id
from swarm_gateway.openai.responses.output import CallItem, TextItem, Told
from swarm_gateway.problems import Problem

_LENGTH = generation_pb2.FINISH_REASON_LENGTH


class ResponseWording:
    """The wording of one response."""

    def __init__(self, names: ReplyNames, document: ResponseDocument, is_streamed: bool, with_logprobs: bool) -> None:
        self._names = names
        self._document = document
        self._is_streamed = is_streamed
        self._with_logprobs = with_logprobs
        self._sequence = 0
        self._items: list[TextItem | CallItem] = []
        self._text: TextItem | None = None  # the one that grows
        self._calls: dict[int, CallItem] = {}
        self._unsaid: list[Any] = []  # likelihoods of tokens whose text is still to come
        self._done = Done()

    def tokens(self, choice: int, batch: Batch) -> bytes:
        """Thoughts, text, calls: what there is, each in the item it belongs to."""
        told = self._begin()
        if batch.reasoning:
            told += self._grow(batch.reasoning, True, ())
        logprobs = content_logprobs(batch.logprobs)["content"] if self._with_logprobs else []
        if batch.text:
            told += self._grow(batch.text, False, [*self._unsaid, *logprobs])
            self._unsaid = []
        elif logprobs and not batch.reasoning and not batch.tool_calls:
            self._unsaid += logprobs
        for delta in batch.tool_calls:
            call = self._calls.get(delta.index)
            if call is None:
                told += self._open_call(delta.index, delta.name)
                call = self._calls[delta.index]
            if delta.arguments:
                told += self._say([call.grow(delta.arguments)])
        return told

    def done(self, choice: int, done: Done) -> bytes:
        """Every item is complete, or cut by the limit."""
        self._done = done
        told = self._begin()
        if not self._items:  # clients look for a message
            told += self._open_text(False)
        if self._unsaid and self._text is not None and not self._text.is_reasoning:
            told += self._say([self._text.grow("", self._unsaid)])
        return told + self._close_all("incomplete" if done.finish_reason == _LENGTH else "completed")

    def end(self) -> bytes:
        """The response, whole."""
        status = "incomplete" if self._done.finish_reason == _LENGTH else "completed"
        document = self._document.ended(status, self._output(status), self._done)
        if self._is_streamed:
            return self._say([(f"response.{status}", {"response": document})])
        return body_of(document)

    def failure(self, problem: Problem) -> bytes:
        """The response, broken off."""
        document = self._document.failed(problem, self._output("incomplete"))
        return self._begin() + self._say([("response.failed", {"response": document})])

    def _begin(self) -> bytes:
        if self._sequence or not self._is_streamed:
            return b""
        running = {"response": self._document.running()}
        return self._say([("response.created", running), ("response.in_progress", running)])

    def _grow(self, text: str, is_reasoning: bool, logprobs: Iterable[Any]) -> bytes:
        told = self._open_text(is_reasoning)
        assert self._text is not None
        return told + self._say([self._text.grow(text, list(logprobs))])

    def _open_text(self, is_reasoning: bool) -> bytes:
        """An item of this kind grows; one of the other kind is complete then."""
        if self._text is not None and self._text.is_reasoning == is_reasoning:
            return b""
        told = self._close_text("completed")
        index = len(self._items)
        name = item_id("rs" if is_reasoning else "msg", self._names.completion_id, index)
        self._text = TextItem(name, index, is_reasoning)
        self._items.append(self._text)
        return told + self._say(self._text.open())

    def _open_call(self, which: int, name: str) -> bytes:
        told = self._close_text("completed")
        index = len(self._items)
        made = call_id(self._names.completion_id, 0, which)
        call = CallItem(item_id("fc", self._names.completion_id, index), index, made, name)
        self._calls[which] = call
        self._items.append(call)
        return told + self._say(call.open())

    def _close_text(self, status: str) -> bytes:
        text, self._text = self._text, None
        return self._say(text.close(status)) if text is not None else b""

    def _close_all(self, status: str) -> bytes:
        """Text that was followed by something is complete; what grew last is what the limit cut."""
        told = self._close_text(status)
        for call in self._calls.values():
            told += self._say(call.close(status if call is self._items[-1] else "completed"))
        return told

    def _output(self, status: str) -> list[Document]:
        return [item.document(status if item is self._items[-1] else "completed") for item in self._items]

    def _say(self, events: Iterable[Told]) -> bytes:
        if not self._is_streamed:
            # What is told of an item is also how it grows, so it is asked for all the same.
            for _ in events:
                pass
            return b""
        told = b""
        for kind, fields in events:
            told += event_of({"type": kind, "sequence_number": self._sequence, **fields}, kind)
            self._sequence += 1
        return told
