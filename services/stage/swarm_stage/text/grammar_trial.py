"""Compiles grammars for a vocabulary: as a trial in a child process first, then here. Knows no request."""

import json
from collections.abc import Sequence
from typing import Any

from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper

# Defaults of the library, but for what a state costs (1-2 kB of memory each, for 250,000 states) and one step's fuel:
# 100,000 are 7 ms on the thread that computes.
LIMITS = LLParserLimits(max_lexer_states=30_000, step_lexer_fuel=100_000, verbose_errors=False)
# Tokens are drawn by the model, one after another: nothing is forced, so no text is ever tokenised in here.
HEAD = '%llguidance {"no_forcing": true}\n'
WORDS_MAX = 300  # of a complaint; the library shows the whole grammar


class Vocabulary:
    """A model's tokens as llguidance's tokenizer object wants them."""

    def __init__(self, tokens: Sequence[bytes], special: Sequence[int], ends: Sequence[int]) -> None:
        self.tokens = tokens
        self.special_token_ids = list(special)
        self.eos_token_id = ends[0]
        self.bos_token_id = None

    def __call__(self, text: bytes | str) -> list[int]:
        """Ids of forced text. Nothing is forced here: tokens are drawn, and only masked."""
        return []


def tokenizer_of(tokens: Sequence[bytes], special: Sequence[int], ends: Sequence[int]) -> LLTokenizer:
    """The vocabulary as grammars are compiled for it. ends: at least one. About 0.1 s for 50,000 tokens."""
    return LLTokenizer(TokenizerWrapper(Vocabulary(tokens, special, ends)), eos_token=list(ends))


def compiled(tokenizer: LLTokenizer, grammar: str) -> LLMatcher:
    """A matcher at its start. Raises ValueError with the library's words."""
    matcher = LLMatcher(tokenizer, grammar, log_level=0, limits=LIMITS)
    if matcher.is_error():
        raise ValueError(_short(matcher.get_error()))
    return matcher


class GrammarTrial:
    """Tries grammars where nothing is lost if they kill the process."""

    def __init__(self, tokens: Sequence[bytes], special: Sequence[int], ends: Sequence[int]) -> None:
        self._tokenizer = tokenizer_of(tokens, special, ends)
        self._ends = frozenset(ends)

    def run(self, grammars: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """{} when all can be compiled and say something; {"refused": why, "which": its name} otherwise.

        grammars: the reply's own, which names the others, then those.
        """
        alone = [({"name": "alone", "lark_grammar": f"{HEAD}start: @{part['name']}"}, part) for part in grammars[1:]]
        for whole, name in [*((each, each[1]["name"]) for each in alone), (grammars, "")]:
            try:
                matcher = compiled(self._tokenizer, json.dumps({"grammars": list(whole)}))
                if not self._says_something(matcher):
                    return {"refused": "no text can follow it", "which": name}
            except Exception as error:
                return {"refused": str(error) or type(error).__name__, "which": name}
        return {}

    def _says_something(self, matcher: LLMatcher) -> bool:
        """Whether a first token is allowed other than an end."""
        mask = int.from_bytes(matcher.compute_bitmask(), "little")
        if matcher.is_error():
            raise ValueError(_short(matcher.get_error()))
        for end in self._ends:
            mask &= ~(1 << end)
        return mask != 0


def _short(words: str) -> str:
    """A complaint without the grammar that follows it."""
    first = words.strip().split("\n\n")[0]
    return first if len(first) <= WORDS_MAX else first[:WORDS_MAX] + "..."
