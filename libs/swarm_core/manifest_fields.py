"""Single fields of servable.json, each of its kind and within its bound. Pure."""

from typing import Any

from swarm_core.errors import ServableCorrupt

MANIFEST_NAME = "servable.json"
_TEXT_CHARACTERS_MAX = 4096


def count_in(document: Any, name: str, most: int = 2**63 - 1, default: int | None = None) -> int:
    """A whole number from 0 to `most`. Raises ServableCorrupt."""
    number = document.get(name, default)
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= most:
        raise ServableCorrupt(f"{MANIFEST_NAME}: {name} is {str(number)[:40]}, not a count up to {most}")
    return number


def flag_in(document: Any, name: str) -> bool:
    """True or false. Raises ServableCorrupt, KeyError."""
    flag = document[name]
    if not isinstance(flag, bool):
        raise ServableCorrupt(f"{MANIFEST_NAME}: {name} is {str(flag)[:40]}, neither true nor false")
    return flag


def text_in(document: Any, name: str, default: str | None = None) -> str:
    """A text without what cannot be sent (halves of a character) or would speak to a terminal. An empty one is none.

    Raises ServableCorrupt.
    """
    text = document.get(name, default)
    is_text = isinstance(text, str) and (text or default is not None) and len(text) <= _TEXT_CHARACTERS_MAX
    if not is_text or not text.isprintable():
        raise ServableCorrupt(f"{MANIFEST_NAME}: {name} is {str(text)[:100]!r}, not a text")
    return text
