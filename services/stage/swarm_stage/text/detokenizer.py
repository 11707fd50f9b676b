"""Tokens to text while they come: whole characters only. Knows decoders as functions from ids to text."""

from collections.abc import Collection, Sequence
from typing import Protocol

BROKEN = "\ufffd"  # what a decoder puts for bytes that are no character (yet)
# A character is at most four bytes, so four tokens; one more that does not complete it proves it broken.
PENDING_MAX = 5


class Decoder(Protocol):
    """What turns ids into text."""

    @property
    def special_ids(self) -> Collection[int]:
        """Ids that are no text."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """The text of all ids together, special ones left out."""
        ...


class Detokenizer:
    """One reply's text. What push and finish return, joined, is decode(all ids), but for a character it ends inside.

    Decodes a few tokens at a time, beginning with the last ones already shown: what a token adds depends on what is
    before it (a leading space, the first bytes of a character).
    """

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self._ids: list[int] = []  # those shown last, then those pending
        self._shown = 0  # how many of them are shown

    def push(self, token_id: int) -> str:
        """Text that is certain with this token; often empty inside a character."""
        if token_id in self._decoder.special_ids:
            return ""
        self._ids.append(token_id)
        text = self._decoder.decode(self._ids)
        if not text.endswith(BROKEN):
            return self._show(len(self._ids))
        if len(self._ids) - self._shown >= PENDING_MAX:
            return self._show(self._certain(text))
        return ""

    def finish(self) -> str:
        """The reply ended: what was held back. The first bytes of a character that never came whole are no text."""
        return self._show(len(self._ids)).rstrip(BROKEN) if len(self._ids) > self._shown else ""

    def _show(self, stop: int) -> str:
        """The text of pending tokens up to `stop`; they become what later ones are decoded behind."""
        if stop <= self._shown:
            return ""
        before = self._decoder.decode(self._ids[: self._shown])
        text = self._decoder.decode(self._ids[:stop])
        # A decoder that falls back to bytes turns a run of them broken as a whole by one bad byte, also those shown.
        added = text[len(before) :] if text.startswith(before) else self._decoder.decode(self._ids[self._shown : stop])
        if added:
            self._ids, self._shown = self._ids[self._shown :], stop - self._shown
        else:  # a token without text gives no context to what follows it
            self._shown = stop
        return added

    def _certain(self, text: str) -> int:
        """How many tokens are final though `text`, of all of them, ends inside a character."""
        for stop in range(len(self._ids) - 1, self._shown, -1):
            start = self._decoder.decode(self._ids[:stop])
            if len(start) < len(text) and text.startswith(start):
                return stop
        return self._shown
