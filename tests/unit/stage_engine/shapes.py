"""Constraints that tests know the answers of."""

from collections.abc import Callable, Collection

import numpy as np
from silentswarm.core.v1 import token_set_pb2
from swarm_wire.token_sets import token_set


class Cycle:
    """Allows one set of ids after the other, over and over; None in the row allows any.

    at: called before each answer with how many came before. A function of the tokens accepted, as it must be.
    """

    def __init__(
        self, row: list[Collection[int] | None], vocabulary_size: int, at: Callable[[int], None] = lambda asked: None
    ) -> None:
        self.accepted: list[int] = []
        self.asked = 0
        self._row = row
        self._vocabulary_size = vocabulary_size
        self._at = at

    def allowed(self) -> token_set_pb2.TokenSet | None:
        self.asked += 1
        assert self.asked == len(self.accepted) + 1, "asked twice for one token, or not told what was drawn"
        self._at(len(self.accepted))
        ids = self._row[len(self.accepted) % len(self._row)]
        if ids is None:
            return None
        allowed_V = np.zeros(self._vocabulary_size, dtype=bool)
        allowed_V[list(ids)] = True
        return token_set(allowed_V)

    def accept(self, token: int) -> None:
        ids = self._row[len(self.accepted) % len(self._row)]
        assert ids is None or token in ids, f"{token} was not allowed"
        self.accepted.append(token)
