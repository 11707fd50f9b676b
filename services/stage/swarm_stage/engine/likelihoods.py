"""Likelihoods of drawn tokens to and from frames. Pure."""

import math

from silentswarm.ring.v1 import ring_pb2
from swarm_core.errors import BadFrame

from swarm_stage.engine.reply import Likelihood


def add_likelihood(sampled: ring_pb2.Sampled, likelihood: Likelihood) -> None:
    """Tell how likely the token added last was."""
    ids, logprobs = zip(*likelihood.top, strict=True) if likelihood.top else ((), ())
    sampled.likelihoods.add(logprob=likelihood.logprob, top_ids=ids, top_logprobs=logprobs)


def read_likelihoods(sampled: ring_pb2.Sampled, top: int | None, vocabulary_size: int) -> tuple[Likelihood, ...]:
    """One for each token, each with its `top` likeliest; none when top is None, which asks for none.

    Raises BadFrame, before it copies, for any other number of them, ids beyond the vocabulary, and numbers that are no
    logarithm of a probability.
    """
    told, due = sampled.likelihoods, 0 if top is None else len(sampled.tokens)
    if len(told) != due:
        raise BadFrame(f"the last stage sent {len(told)} likelihoods where {due} were due")
    return tuple(_read(likelihood, min(top or 0, vocabulary_size), vocabulary_size) for likelihood in told)


def _read(told: ring_pb2.Likelihood, top: int, vocabulary_size: int) -> Likelihood:
    if len(told.top_ids) != top or len(told.top_logprobs) != top:
        raise BadFrame(f"a likelihood names {len(told.top_ids)} and {len(told.top_logprobs)} of the {top} likeliest")
    if any(token >= vocabulary_size for token in told.top_ids):
        raise BadFrame(f"a likelihood names token {max(told.top_ids)}, beyond a vocabulary of {vocabulary_size}")
    if not all(-math.inf < logprob <= 0 for logprob in (told.logprob, *told.top_logprobs)):
        raise BadFrame("a likelihood has a logarithm of no probability")
    return Likelihood(told.logprob, tuple(zip(told.top_ids, told.top_logprobs, strict=True)))
