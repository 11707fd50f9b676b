"""Reads calls out of text while it comes: a tool's name, and its arguments as pieces of JSON text. No marks in here."""

import json
from collections.abc import Collection

BLANK = " \t\r\n"
_ARGUMENTS = frozenset(("arguments", "parameters"))


class ValueScanner:
    """Finds the end of one JSON value. Trusts that it is well formed: brackets and quotes are all it looks at."""

    def __init__(self) -> None:
        self.is_over = False
        self._depth = 0
        self._has_begun = False
        self._is_string = False
        self._is_escaped = False

    def push(self, text: str) -> int:
        """How many characters of `text` belong to the value; all of them while it goes on.

        A number or a word ends before what cannot belong to it, so its end is seen one character late.
        """
        for place, letter in enumerate(text):
            if self._is_string:
                self._step_in_string(letter)
                if not self._is_string and not self._depth:
                    return self._end(place + 1)
            elif not self._depth and self._has_begun and letter not in "{[" and (letter in ',}]"' or letter in BLANK):
                return self._end(place)
            elif letter in "}]":
                if not self._depth:
                    return self._end(place)
                self._depth -= 1
                if not self._depth:
                    return self._end(place + 1)
            else:
                self._depth += letter in "{["
                self._is_string = letter == '"'
                self._has_begun |= letter not in BLANK
        return len(text)

    def _step_in_string(self, letter: str) -> None:
        if self._is_escaped:
            self._is_escaped = False
        elif letter == "\\":
            self._is_escaped = True
        elif letter == '"':
            self._is_string = False

    def _end(self, place: int) -> int:
        self.is_over = True
        return place


class CallScanner:
    """One call, an object with a name and arguments. name: None until it is known. seen: the text of it so far.

    is_broken: it is no call after all, which can only show before its name is known.
    """

    def __init__(self, tools: Collection[str] = ()) -> None:
        """tools: a name that is not among them makes it no call; empty is any name."""
        self.name: str | None = None
        self.is_over = False
        self.is_broken = False
        self.has_arguments = False
        self.seen = ""
        self._tools = tools
        self._expected = "{"  # then "key", ":", "value"
        self._key = ""
        self._raw = ""  # of the key or value being read
        self._value: ValueScanner | None = None
        self._early = ""  # arguments that came before the name

    def push(self, text: str) -> tuple[str, int]:
        """More text: the arguments in it, and how many characters belong to the call, to its end or where it broke."""
        arguments, place = "", 0
        while place < len(text) and not (self.is_over or self.is_broken):
            start = place
            if self._value is not None:
                place += self._value.push(text[place:])
                arguments += self._take(text[start:place])
            else:
                self._step(text[place])
                place += 1
            self.seen += text[start:place]
        return arguments, place

    def _step(self, letter: str) -> None:
        """One letter between keys and values."""
        if letter in BLANK or (letter == "," and self._expected == "key"):
            return
        if letter == "}" and self._expected == "key":
            self.is_over = self.name is not None
            self.is_broken = not self.is_over
        elif letter == '"' and self._expected == "key":
            self._value, self._raw = ValueScanner(), '"'
            self._value.push(letter)
        elif letter == self._expected == "{":
            self._expected = "key"
        elif letter == self._expected == ":":
            self._expected = "value"
            self._value, self._raw = ValueScanner(), ""
        elif self.name is None:
            self.is_broken = True
        else:
            self.is_over = True

    def _take(self, piece: str) -> str:
        """More of a key or of a value; the arguments in it."""
        assert self._value is not None
        is_argument = self._expected == "value" and self._key in _ARGUMENTS
        if is_argument and not self._raw:
            piece = piece.lstrip(BLANK)
        self._raw += piece
        self.has_arguments |= is_argument
        arguments = self._arguments(piece) if is_argument else ""
        if not self._value.is_over:
            return arguments
        self._value = None
        if self._expected == "key":
            self._key, self._expected = str(_json_of(self._raw)), ":"
            return ""
        self._expected = "key"
        if self._key == "name" and self.name is None:
            return self._named(_json_of(self._raw))
        return arguments

    def _named(self, name: object) -> str:
        if not isinstance(name, str) or not name or (self._tools and name not in self._tools):
            self.is_broken = True
            return ""
        self.name = name
        early, self._early = self._early, ""
        return early

    def _arguments(self, piece: str) -> str:
        if self.name is not None:
            return piece
        self._early += piece
        return ""


def _json_of(raw: str) -> object:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return None
