"""Prompts of about so many tokens, from common words. Pure."""

# Each is one token, with the space before it, in nearly every vocabulary of English.
_WORDS = (
    "river stone light paper green water night house morning bread glass train story winter garden music table "
    "forest cloud letter market summer island bridge silver candle yellow wind road field song door"
)
WORDS = tuple(_WORDS.split())


def prompt_of(words: int, turn: int) -> str:
    """So many words; those of another turn differ from the first one on, so that no cache of prompts helps."""
    count = len(WORDS)
    step = turn % (count - 1) + 1
    return " ".join(WORDS[(turn * 7919 + index * step + index // count) % count] for index in range(words))
