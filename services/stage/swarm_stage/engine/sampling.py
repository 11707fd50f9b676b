"""How one reply is drawn, read from the wire and checked. Plain numbers: draws nothing, no torch."""

import math
from dataclasses import dataclass
from functools import cached_property

from silentswarm.core.v1 import generation_pb2
from swarm_core.errors import BadRequest

SEED_STOP = 1 << 64
BIASES_MAX = 1024
BIAS_MAX = 100.0
PENALTY_MAX = 2.0
TOP_LOGPROBS_MAX = 20


@dataclass(frozen=True)
class Sampling:
    """How one reply is drawn. Raises BadRequest naming the field that is out of range.

    temperature: 0 is greedy, from 0 on. top_p: (0, 1], 1 is all. top_k: 0 is all. min_p: [0, 1], share of the best
    token's probability. seed: below 2^64. frequency_penalty, presence_penalty: -2..2, 0 is none. repetition_penalty:
    above 0, 1 is none. logit_bias: (id, bias) with biases in -100..100, at most 1,024, each id once. top_logprobs:
    0..20; None asks for no log-probabilities.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int = 0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    top_logprobs: int | None = None

    def __post_init__(self) -> None:
        _check("temperature", self.temperature, 0 <= self.temperature < math.inf, "a number from 0")
        _check("top_p", self.top_p, 0 < self.top_p <= 1, "above 0 and at most 1")
        _check("top_k", self.top_k, isinstance(self.top_k, int) and self.top_k >= 0, "a whole number from 0")
        _check("min_p", self.min_p, 0 <= self.min_p <= 1, "from 0 to 1")
        _check("seed", self.seed, isinstance(self.seed, int) and 0 <= self.seed < SEED_STOP, "from 0 to 2^64 - 1")
        for field in ("frequency_penalty", "presence_penalty"):
            penalty = getattr(self, field)
            _check(field, penalty, -PENALTY_MAX <= penalty <= PENALTY_MAX, "from -2 to 2")
        repetition = self.repetition_penalty
        _check("repetition_penalty", repetition, 0 < repetition < math.inf, "above 0")
        top = self.top_logprobs
        _check("top_logprobs", top, top is None or 0 <= top <= TOP_LOGPROBS_MAX, f"from 0 to {TOP_LOGPROBS_MAX}")
        if self.logit_bias:
            _check_biases(self.logit_bias)

    @cached_property
    def counts_tokens(self) -> bool:
        """Draws depend on what was drawn before."""
        return bool(self.frequency_penalty or self.presence_penalty or self.repetition_penalty != 1)

    @cached_property
    def shapes_logits(self) -> bool:
        """Logits are changed before a token is drawn."""
        return self.counts_tokens or bool(self.logit_bias)


def sampling_from_proto(sampling: generation_pb2.Sampling, vocabulary_size: int) -> Sampling:
    """Absent fields take the neutral value; stage 0 has filled in the model's own defaults.

    Raises BadRequest naming the field, before anything is allocated for it.
    """
    has, biases = sampling.HasField, sampling.logit_bias
    if len(biases) > BIASES_MAX:
        raise BadRequest(f"logit_bias has {len(biases)} tokens; at most {BIASES_MAX}", field="logit_bias")
    highest = max((bias.token for bias in biases), default=0)
    if biases and highest >= vocabulary_size:
        beyond = f"logit_bias names token {highest}, which is not in this model's vocabulary of {vocabulary_size}"
        raise BadRequest(beyond, field="logit_bias", token=highest, vocabulary_size=vocabulary_size)
    return Sampling(
        temperature=sampling.temperature if has("temperature") else 1.0,
        top_p=sampling.top_p if has("top_p") else 1.0,
        top_k=sampling.top_k,
        min_p=sampling.min_p,
        seed=sampling.seed,
        frequency_penalty=sampling.frequency_penalty,
        presence_penalty=sampling.presence_penalty,
        repetition_penalty=sampling.repetition_penalty if has("repetition_penalty") else 1.0,
        logit_bias=tuple((bias.token, bias.bias) for bias in biases),
        top_logprobs=sampling.top_logprobs if has("top_logprobs") else None,
    )


def _check_biases(biases: tuple[tuple[int, float], ...]) -> None:
    _check("logit_bias", len(biases), len(biases) <= BIASES_MAX, f"of at most {BIASES_MAX} tokens")
    for token, bias in biases:
        _check("logit_bias", bias, -BIAS_MAX <= bias <= BIAS_MAX, "from -100 to 100")
        _check("logit_bias", token, token >= 0, "of tokens from 0")
    if len({token for token, _ in biases}) < len(biases):
        raise BadRequest("logit_bias names a token twice", field="logit_bias")


def _check(field: str, value: object, holds: bool, allowed: str) -> None:
    if not holds:
        raise BadRequest(f"{field} is {value!r}; it must be {allowed}", field=field)


NEUTRAL = Sampling()
