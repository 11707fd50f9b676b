"""How the next token is drawn from logits. A function of its arguments alone: no generator keeps state."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from swarm_core.errors import StageFailed

from swarm_stage.engine.sampling import Sampling

LOGPROB_MIN = -9999.0  # less likely ones are told as this: JSON has no infinity, and OpenAI's API says the same


def draw(
    logits_V: torch.Tensor | np.ndarray, sampling: Sampling, position: int, permitted_V: np.ndarray | None = None
) -> int:
    """The token at `position` (of the whole text, prompt included). permitted_V: the only ones; None is any.

    Greedy takes the lowest id at an exact tie. Otherwise temperature, top_k, top_p and min_p in this order, as
    transformers applies them, always leaving at least one token; then the inverse of the distribution cumulated by id,
    at one uniform number that depends on (seed, position) alone. Penalties and biases are shape_logits's.
    Raises StageFailed when a logit is not finite, or nothing is permitted.
    """
    logits_V = logits_V.float().cpu().numpy() if isinstance(logits_V, torch.Tensor) else np.asarray(logits_V)
    if not np.isfinite(logits_V).all():
        broken = int(np.count_nonzero(~np.isfinite(logits_V)))
        raise StageFailed(f"{broken} of {logits_V.size} logits are not finite", position=position)
    if permitted_V is None:
        return _choose(logits_V, sampling, position)
    ids = np.flatnonzero(permitted_V)
    if not len(ids):
        raise StageFailed("no token may come here: what the reply's shape allows is empty", position=position)
    return int(ids[_choose(logits_V[ids], sampling, position)])


def shape_logits(
    logits_V: np.ndarray, sampling: Sampling, prompt_ids: Sequence[int] | np.ndarray, counts: Mapping[int, int]
) -> np.ndarray:
    """Logits with penalties and biases, in float64, which none of them overflows.

    First the repetition penalty on every token of prompt and reply, as transformers; then per token of the reply
    frequency_penalty for each time and presence_penalty once, as OpenAI; then biases. counts: how often each token is
    in the reply so far. Ids are below V.
    """
    shaped_V = logits_V.astype(np.float64)
    drawn_ids = np.fromiter(counts, np.int64, len(counts))
    penalty = sampling.repetition_penalty
    if penalty != 1:
        ids = np.union1d(np.asarray(prompt_ids, np.int64), drawn_ids)
        shaped_V[ids] = np.where(shaped_V[ids] > 0, shaped_V[ids] / penalty, shaped_V[ids] * penalty)
    if len(drawn_ids) and (sampling.frequency_penalty or sampling.presence_penalty):
        times = np.fromiter(counts.values(), np.float64, len(counts))
        shaped_V[drawn_ids] -= times * sampling.frequency_penalty + sampling.presence_penalty
    if sampling.logit_bias:
        biased_ids, biases = zip(*sampling.logit_bias, strict=True)
        shaped_V[list(biased_ids)] += biases
    return shaped_V


def permit(allowed_V: np.ndarray | None, held_ids: Sequence[int], vocabulary_size: int) -> np.ndarray | None:
    """What may be drawn: what is allowed less what is held back; None is any. A hold never leaves nothing: it yields
    where all that is allowed is held.
    """
    if not held_ids:
        return allowed_V
    permitted_V = np.ones(vocabulary_size, dtype=bool) if allowed_V is None else allowed_V.copy()
    permitted_V[list(held_ids)] = False
    return permitted_V if permitted_V.any() else allowed_V


def log_probabilities(logits_V: np.ndarray, token: int, top: int) -> tuple[float, tuple[tuple[int, float], ...]]:
    """Natural logarithm of a token's probability, and (id, logarithm) of the `top` likeliest, the lower id first at a
    tie. Of the distribution as it is; computed in float64. At least LOGPROB_MIN.
    """
    logits_V = logits_V.astype(np.float64)
    best = logits_V.max()
    norm = best + np.log(np.exp(logits_V - best).sum())
    ids = _likeliest(logits_V, top)
    ids = ids[np.lexsort((ids, -logits_V[ids]))]
    told = np.maximum(logits_V[ids] - norm, LOGPROB_MIN).tolist()
    return max(float(logits_V[token] - norm), LOGPROB_MIN), tuple(zip(ids.tolist(), told, strict=True))


def _likeliest(logits_V: np.ndarray, count: int) -> np.ndarray:
    """`count` ids in no order; which of equally likely ones a partition takes is its own affair, so the lowest are."""
    if count >= len(logits_V):
        return np.arange(len(logits_V))
    if count == 0:
        return np.arange(0)
    worst = np.partition(logits_V, -count)[-count]
    above, level = np.flatnonzero(logits_V > worst), np.flatnonzero(logits_V == worst)
    return np.concatenate([above, level[: count - len(above)]])


def uniform_at(seed: int, position: int) -> float:
    """A number in [0, 1) that depends on its two arguments only; 53 random bits."""
    word = int(np.random.Philox(key=seed, counter=position).random_raw())
    return (word >> 11) * 2.0**-53


def _choose(logits_N: np.ndarray, sampling: Sampling, position: int) -> int:
    """The place of the token that is drawn."""
    if sampling.temperature == 0:
        return int(logits_N.argmax())
    places, weights = _kept_tokens(logits_N, sampling)
    cumulated = np.cumsum(weights)
    chosen = int(np.searchsorted(cumulated, uniform_at(sampling.seed, position) * cumulated[-1], side="right"))
    return int(places[min(chosen, len(places) - 1)])


def _kept_tokens(logits_N: np.ndarray, sampling: Sampling) -> tuple[np.ndarray, np.ndarray]:
    """Places that may be drawn, ascending, and their weights relative to the best token's 1.

    By id and not by likelihood: another batch shape rounds differently, and two tokens that change places in the
    order would change the draw. Tokens exactly as likely as the last one kept are kept with it.
    """
    logits_N = logits_N.astype(np.float64, copy=False)
    with np.errstate(over="ignore"):  # a tiny temperature sends all but the best to -inf, which weighs 0
        weights_N = np.exp((logits_N - logits_N.max()) / sampling.temperature)
    kept_N = np.ones(len(weights_N), dtype=bool)
    if 0 < sampling.top_k < len(logits_N):
        kept_N &= logits_N >= np.partition(logits_N, -sampling.top_k)[-sampling.top_k]
    if sampling.top_p < 1:
        kept_N &= weights_N >= _nucleus_floor(weights_N[kept_N], sampling.top_p)
    if sampling.min_p > 0:
        kept_N &= weights_N >= sampling.min_p
    places = np.flatnonzero(kept_N)
    return places, weights_N[places]


def _nucleus_floor(weights: np.ndarray, top_p: float) -> float:
    """The smallest weight in the smallest set of best weights that holds `top_p` of the sum."""
    ordered = np.sort(weights)[::-1]
    before = np.cumsum(ordered) - ordered
    return ordered[max(1, int(np.count_nonzero(before < top_p * ordered.sum()))) - 1]
