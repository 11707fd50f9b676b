"""Draws the tokens of one session and knows which it drew. All else is sampling.py's: functions of their arguments."""

from collections.abc import Sequence

import numpy as np

from swarm_stage.engine.reply import Likelihood
from swarm_stage.engine.sampling import Sampling
from swarm_stage.model.sampling import draw, log_probabilities, permit, shape_logits

_NO_IDS = np.empty(0, np.int64)


class Drawer:
    """One session's. What it keeps is a function of the tokens it was given or drew, whatever happened in between.

    prompt_ids: tokens of the prompt, for a repetition penalty alone. Nothing is kept for a session without penalties.
    """

    def __init__(self, sampling: Sampling, prompt_ids: Sequence[int] = ()) -> None:
        self._sampling = sampling
        self._prompt_ids = np.asarray(prompt_ids, np.int64) if prompt_ids else _NO_IDS
        self._drawn: dict[int, int] = {}  # token by position, ascending
        self._counts: dict[int, int] = {}

    def draw(
        self,
        logits_V: np.ndarray,
        position: int,
        allowed_V: np.ndarray | None = None,
        held_ids: Sequence[int] = (),
    ) -> tuple[int, Likelihood | None]:
        """The token at `position`, and how likely it was when the session asks. Raises StageFailed."""
        sampling = self._sampling
        permitted_V = permit(allowed_V, held_ids, len(logits_V))
        shaped_V = logits_V
        if sampling.shapes_logits:
            shaped_V = shape_logits(logits_V, sampling, self._prompt_ids, self._counts)
        token = draw(shaped_V, sampling, position, permitted_V)
        if sampling.counts_tokens:
            self.take(position, token)
        if sampling.top_logprobs is None:
            return token, None
        return token, Likelihood(*log_probabilities(logits_V, token, sampling.top_logprobs))

    def take(self, position: int, token: int) -> None:
        """`token` stands at `position`, behind all it has."""
        self._drawn[position] = token
        self._counts[token] = self._counts.get(token, 0) + 1

    def restore(self, position: int, tokens: Sequence[int]) -> None:
        """These stand right before `position`, drawn elsewhere; it has none of its own yet."""
        if not self._sampling.counts_tokens:
            return
        for place, token in enumerate(tokens, start=position - len(tokens)):
            self.take(place, token)

    def crop(self, pos: int) -> None:
        """The session goes on from a frame at `pos`: what was drawn for a place behind that never came to be."""
        while self._drawn and next(reversed(self._drawn)) > pos:
            _, token = self._drawn.popitem()
            self._counts[token] -= 1
            if not self._counts[token]:
                del self._counts[token]
