"""A grammar at work: which tokens may come next in one reply. Compiling is tried in another process first.

The library compiles most grammars in a millisecond, some never, and a few crash the process they are compiled in. So
a child with a time limit goes first; what it survives is compiled here, within the same bounds.
"""

import base64
import json
import threading
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from llguidance import LLMatcher, LLTokenizer
from silentswarm.core.v1 import token_set_pb2
from swarm_core.errors import BadRequest, StageFailed
from swarm_wire.token_sets import token_set

from swarm_stage.text.content_grammar import CONSTRAINT_FIELD
from swarm_stage.text.grammar import Grammar
from swarm_stage.text.grammar_trial import compiled, tokenizer_of
from swarm_stage.text.workroom import TaskKilled, TaskRefused, Workrooms

COMPILE_TIMEOUT_S = 1.8  # callers are told within 2 s
COMPILERS = 2
KEPT_GRAMMARS = 32  # clients send the same tools with every turn


class GrammarConstraint:
    """One reply's. An engine's Constraint: allowed, draw, accept, and so on."""

    def __init__(self, matcher: LLMatcher, vocabulary_size: int, end_ids: Sequence[int], field: str) -> None:
        """vocabulary_size: rows of the model's head; tokens beyond it are never drawn. field: whose shape it is."""
        self._matcher = matcher
        self._vocabulary_size = vocabulary_size
        self._end_ids = list(end_ids)
        self._field = field

    def allowed(self) -> token_set_pb2.TokenSet | None:
        """The tokens that go on within the grammar, ends of turn where it may end.

        Raises BadRequest for a shape that compiles and then grows beyond bounds: asked again, it does so again.
        """
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        if self._matcher.is_error():
            why = self._matcher.get_error().splitlines()[0][:200]
            raise BadRequest(f"the {_noun(self._field)} became too much to follow: {why}", field=self._field)
        known_V = np.unpackbits(bits, bitorder="little", count=min(bits.size * 8, self._vocabulary_size))
        allowed_V = np.zeros(self._vocabulary_size, np.bool_)
        allowed_V[: known_V.size] = known_V
        if self._matcher.is_stopped():
            allowed_V[:] = False
            allowed_V[self._end_ids] = True
        return token_set(allowed_V)

    def accept(self, token: int) -> None:
        """`token` was drawn. Raises StageFailed when the grammar has no place for it: it was not drawn from allowed."""
        if token in self._end_ids or self._matcher.is_stopped():
            return
        if not self._matcher.consume_token(token):
            raise StageFailed(f"token {token} was drawn, which the reply's grammar does not allow here")


class GrammarCompiler:
    """Makes constraints for one model. Blocks; safe to use from several threads."""

    def __init__(self, tokens: Sequence[bytes], special_ids: Collection[int], end_ids: Collection[int]) -> None:
        """tokens: bytes by id. end_ids: those that end a turn, all of them among the tokens; at least one."""
        self._tokens = tokens
        self._special_ids = sorted(special_ids)
        self._end_ids = sorted(end_ids)
        self._tokenizer: LLTokenizer | None = None
        self._lock = threading.Lock()
        self._rooms = Workrooms(COMPILERS, self._equipment)
        self._kept: OrderedDict[str, LLMatcher] = OrderedDict()

    def constraint(self, grammar: Grammar, vocabulary_size: int) -> GrammarConstraint:
        """The grammar at its start. Raises BadRequest that names the field it came from."""
        listed = grammar.to_list()
        text = json.dumps({"grammars": listed})
        with self._lock:
            kept = self._kept.get(text)
            if kept is not None:
                self._kept.move_to_end(text)
        if kept is None:
            kept = self._compiled(grammar, listed, text)
            with self._lock:
                self._kept[text] = kept
                if len(self._kept) > KEPT_GRAMMARS:
                    self._kept.popitem(last=False)
        ends = [token for token in self._end_ids if token < vocabulary_size]
        return GrammarConstraint(kept.deep_copy(), vocabulary_size, ends, _fields_of(grammar)[0])

    def close(self) -> None:
        """End the children."""
        self._rooms.close()

    def _compiled(self, grammar: Grammar, listed: list[dict[str, Any]], text: str) -> LLMatcher:
        fields = _fields_of(grammar)
        try:
            self._rooms.ask({"do": "grammar", "grammars": listed}, COMPILE_TIMEOUT_S)
        except TaskRefused as refusal:
            field = grammar.fields.get(refusal.which, fields[0])
            raise BadRequest(f"the {_noun(field)} cannot be used: {refusal}", field=field) from None
        except TaskKilled as killed:
            raise BadRequest(f"the {_noun(fields[0])} cannot be used: {killed}", field=fields[0]) from None
        with self._lock:
            if self._tokenizer is None:
                self._tokenizer = tokenizer_of(self._tokens, self._special_ids, self._end_ids)
        try:
            return compiled(self._tokenizer, text)
        except ValueError as error:
            raise BadRequest(f"the {_noun(fields[0])} cannot be used: {error}", field=fields[0]) from None

    def _equipment(self) -> Mapping[str, Any]:
        tokens = [base64.b64encode(token).decode() for token in self._tokens]
        return {"tokens": tokens, "special": self._special_ids, "ends": self._end_ids}


def _fields_of(grammar: Grammar) -> list[str]:
    """The fields its parts came from, at least one."""
    return sorted(set(grammar.fields.values())) or [CONSTRAINT_FIELD]


def _noun(field: str) -> str:
    return "schema of a tool" if field == "tools" else "grammar of the reply"
