"""Marks that people type into messages stay text: `<|im_start|>` in a question does not begin a turn.

A typed mark is broken by a noncharacter before the template sees it, so that what the template writes itself can be
told from it. Then the template's marks are disguised and the typed ones mended, and a tokenizer that knows only the
disguises encodes all of it in one go: what it does at marks (spaces it strips, words it begins) is as ever.
"""

import json
import re
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from swarm_core.errors import BadRequest
from tokenizers import Tokenizer

BREAK = "\U0010fffe"  # no character, so no text has a use for it
_DISGUISE = "\U0010ffff"
_DISGUISE_FIRST = 0xF0000


class TypedMarks:
    """The marks of one tokenizer. Safe to use from several threads."""

    def __init__(self, marks: Mapping[str, int], tokenizer_json: Callable[[], str]) -> None:
        """marks: what becomes a token of its own when a template writes it, and its id.

        tokenizer_json: the tokenizer, read when the first typed mark comes: a second one costs as much memory again.
        """
        self._marks = {mark: token for mark, token in marks.items() if len(mark) > 1}
        self._tokenizer_json = tokenizer_json
        longest_first = sorted(self._marks, key=len, reverse=True)
        self._any = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")
        # Hundreds of alternatives are slow to try everywhere, and few characters begin one.
        firsts = "".join(sorted({mark[0] for mark in self._marks}))
        self._first = re.compile(f"[{re.escape(firsts)}]" if firsts else r"(?!)")

    def broken(self, value: Any, kept: frozenset[str] = frozenset()) -> Any:
        """`value`, a JSON value, with the marks in all its texts broken, but for those kept."""
        if isinstance(value, str):
            return self._broken_text(value, kept)
        if isinstance(value, Mapping):
            return {self._broken_text(key, kept): self.broken(each, kept) for key, each in value.items()}
        if isinstance(value, list):
            return [self.broken(each, kept) for each in value]
        return value

    def encode(self, text: str) -> list[int]:
        """Ids of a rendered text with broken marks in it.

        Raises BadRequest when it holds what disguises are made of, or the vocabulary spells a mark as plain text.
        """
        if _DISGUISE in text:
            raise BadRequest("a message holds U+10FFFF, which is no character", field="messages")
        tokenizer, real = self._disguised
        disguised = self._any.sub(lambda found: _disguise(self._marks[found[0]]), text).replace(BREAK, "")
        ids = []
        for token in tokenizer.encode(disguised, add_special_tokens=False).ids:
            if token not in real and token in self._marks.values():
                words = "a message spells out a mark of this model, which it cannot take as plain text"
                raise BadRequest(words, field="messages")
            ids.append(real.get(token, token))
        return ids

    @cached_property
    def _disguised(self) -> tuple[Tokenizer, dict[int, int]]:
        """A tokenizer in which every mark has another name, and what its added tokens are in the real one."""
        described = json.loads(self._tokenizer_json())
        named: dict[str, int] = {}
        for added in described["added_tokens"]:
            token = added["id"]
            if self._marks.get(added["content"]) == token:
                added |= {"content": _disguise(token), "normalized": False}
            named[added["content"]] = token
        tokenizer = Tokenizer.from_str(json.dumps(described))
        tokenizer.no_truncation()
        tokenizer.no_padding()
        places = [(tokenizer.token_to_id(name), token) for name, token in named.items()]
        return tokenizer, {place: token for place, token in places if place is not None}

    def _broken_text(self, text: str, kept: frozenset[str]) -> str:
        parts, shown = [], 0
        for first in self._first.finditer(text):
            mark = self._any.match(text, first.start())
            if mark is not None and mark[0] not in kept:
                parts += [text[shown : first.end()], BREAK]
                shown = first.end()
        return "".join([*parts, text[shown:]]) if parts else text


def _disguise(token: int) -> str:
    return f"{_DISGUISE}{chr(_DISGUISE_FIRST + token // 0xFF00)}{chr(_DISGUISE_FIRST + token % 0xFF00)}{_DISGUISE}"
