"""One reply's tokens to its parts: whole characters, marks that are special tokens, stop texts in the content."""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from swarm_stage.text.detokenizer import Decoder, Detokenizer
from swarm_stage.text.reply_parser import Parts, ReplyParser
from swarm_stage.text.reply_shape import PLAIN, ReplyShape
from swarm_stage.text.stop_strings import StopMatcher


class MarkedDecoder(Decoder, Protocol):
    """A decoder that knows which special tokens are marks in replies."""

    def special_marks(self, shape: ReplyShape) -> Mapping[int, str]:
        """Marks of a reply of this shape that are special tokens, by id."""
        ...


class ReplyReader:
    """What push of every token and finish return, joined, is the reply. Nothing comes after a stop text."""

    def __init__(
        self, decoder: MarkedDecoder, shape: ReplyShape, stop: Sequence[str], end_ids: Collection[int]
    ) -> None:
        """end_ids: tokens that end a turn, which are no text. Raises BadRequest for an empty stop text."""
        self._detokenizer = Detokenizer(decoder)
        self._parser = ReplyParser(shape)
        self._marks = {} if shape is PLAIN else decoder.special_marks(shape)
        self._stop = StopMatcher(stop) if stop else None
        self._end_ids = end_ids
        self.is_stopped = False
        self.reasoning_tokens = 0

    @property
    def is_content(self) -> bool:
        """Whether what comes now is content, as far as can be told."""
        return self._parser.is_content

    @property
    def calls(self) -> int:
        """Calls begun so far."""
        return self._parser.calls

    def push(self, token: int, looks_for_stop: bool = True) -> Parts:
        """What is certain with this token."""
        was_reasoning = self._parser.is_reasoning
        if token in self._end_ids:  # no text, whether or not the tokenizer calls it special
            text = ""
        elif token in self._marks:
            text = self._detokenizer.finish() + self._marks[token]
        else:
            text = self._detokenizer.push(token)
        parts = self._parser.push(text)
        self.reasoning_tokens += was_reasoning or self._parser.is_reasoning
        return self._stopped(parts) if looks_for_stop else parts

    def finish(self) -> Parts:
        """The reply ended: what was held back."""
        if self.is_stopped:
            return Parts()
        parts = self._parser.push(self._detokenizer.finish())
        rest = self._parser.finish()
        parts = Parts(parts.content + rest.content, parts.reasoning + rest.reasoning, [*parts.calls, *rest.calls])
        parts = self._stopped(parts)
        if self._stop is not None and not self.is_stopped:
            parts.content += self._stop.finish()
        return parts

    def _stopped(self, parts: Parts) -> Parts:
        """The same up to the first stop text, of which a part may be held back."""
        if self._stop is None:
            return parts
        parts.content, self.is_stopped = self._stop.push(parts.content)
        if self.is_stopped:
            parts.calls = []
        return parts
