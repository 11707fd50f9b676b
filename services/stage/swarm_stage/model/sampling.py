"""How the next token is drawn from logits. A function of its arguments alone: no generator keeps state."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from swarm_core.errors import BadRequest, StageFailed

SEED_STOP = 1 << 64


@dataclass(frozen=True)
class Sampling:
    """How one reply is drawn. Raises BadRequest naming the field that is out of range.

    temperature: 0 is greedy, from 0 on. top_p: (0, 1], 1 is all. top_k: 0 is all. min_p: [0, 1], share of the best
    token's probability. seed: below 2^64.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        _check("temperature", self.temperature, 0 <= self.temperature < math.inf, "a number from 0")
        _check("top_p", self.top_p, 0 < self.top_p <= 1, "above 0 and at most 1")
        _check("top_k", self.top_k, isinstance(self.top_k, int) and self.top_k >= 0, "a whole number from 0")
        _check("min_p", self.min_p, 0 <= self.min_p <= 1, "from 0 to 1")
        _check("seed", self.seed, isinstance(self.seed, int) and 0 <= self.seed < SEED_STOP, "from 0 to 2^64 - 1")


def draw(logits_V: torch.Tensor | np.ndarray, sampling: Sampling, position: int) -> int:
    """The token at `position` (of the whole text, prompt included).

    Greedy takes the lowest id at an exact tie. Otherwise temperature, top_k, top_p and min_p in this order, as
    transformers applies them, always leaving at least one token; then the inverse of the distribution cumulated by id,
    at one uniform number that depends on (seed, position) alone.
    Raises StageFailed when a logit is not finite.
    """
    logits_V = logits_V.float().cpu().numpy() if isinstance(logits_V, torch.Tensor) else np.asarray(logits_V)
    if not np.isfinite(logits_V).all():
        broken = int(np.count_nonzero(~np.isfinite(logits_V)))
        raise StageFailed(f"{broken} of {logits_V.size} logits are not finite", position=position)
    if sampling.temperature == 0:
        return int(logits_V.argmax())
    ids, weights = _kept_tokens(logits_V, sampling)
    cumulated = np.cumsum(weights)
    chosen = int(np.searchsorted(cumulated, uniform_at(sampling.seed, position) * cumulated[-1], side="right"))
    return int(ids[min(chosen, len(ids) - 1)])


def uniform_at(seed: int, position: int) -> float:
    """A number in [0, 1) that depends on its two arguments only; 53 random bits."""
    word = int(np.random.Philox(key=seed, counter=position).random_raw())
    return (word >> 11) * 2.0**-53


def _kept_tokens(logits_V: np.ndarray, sampling: Sampling) -> tuple[np.ndarray, np.ndarray]:
    """Ids that may be drawn, ascending, and their weights relative to the best token's 1.

    By id and not by likelihood: another batch shape rounds differently, and two tokens that change places in the
    order would change the draw. Tokens exactly as likely as the last one kept are kept with it.
    """
    logits_V = logits_V.astype(np.float64)
    with np.errstate(over="ignore"):  # a tiny temperature sends all but the best to -inf, which weighs 0
        weights_V = np.exp((logits_V - logits_V.max()) / sampling.temperature)
    kept_V = np.ones(len(weights_V), dtype=bool)
    if 0 < sampling.top_k < len(logits_V):
        kept_V &= logits_V >= np.partition(logits_V, -sampling.top_k)[-sampling.top_k]
    if sampling.top_p < 1:
        kept_V &= weights_V >= _nucleus_floor(weights_V[kept_V], sampling.top_p)
    if sampling.min_p > 0:
        kept_V &= weights_V >= sampling.min_p
    ids = np.flatnonzero(kept_V)
    return ids, weights_V[ids]


def _nucleus_floor(weights: np.ndarray, top_p: float) -> float:
    """The smallest weight in the smallest set of best weights that holds `top_p` of the sum."""
    ordered = np.sort(weights)[::-1]
    before = np.cumsum(ordered) - ordered
    return ordered[max(1, int(np.count_nonzero(before < top_p * ordered.sum()))) - 1]


def _check(field: str, value: object, holds: bool, allowed: str) -> None:
    if not holds:
        raise BadRequest(f"{field} is {value!r}; it must be {allowed}", field=field)
