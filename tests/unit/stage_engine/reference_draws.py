"""What transformers' whole model gives when a reply is drawn one token after the other, by plain formulas. For tests.

Shares nothing with what it checks but the uniform number of a position.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from silentswarm.core.v1 import generation_pb2
from swarm_stage.model.sampling import uniform_at
from transformers.generation.logits_process import (
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

Row = Sequence[Collection[int] | None]


@dataclass(frozen=True)
class Drawn:
    """A reply, and for each token log-probabilities of the whole vocabulary."""

    tokens: list[int]
    logprobs_NV: np.ndarray


@torch.inference_mode()
def draw_reply(
    model: Any, prompt: Sequence[int], new_tokens: int, sampling: generation_pb2.Sampling, row: Row = (None,)
) -> Drawn:
    """row: what may come at each place, over and over; None is any."""
    tokens: list[int] = []
    logprobs_NV = []
    for place in range(new_tokens):
        ids_BT = torch.tensor([[*prompt, *tokens]])
        logits_BV = model(ids_BT, use_cache=False).logits[:, -1].double()
        logprobs_NV.append(logits_BV[0].log_softmax(-1).numpy())
        tokens.append(_draw(logits_BV, ids_BT, tokens, sampling, row[place % len(row)]))
    return Drawn(tokens, np.array(logprobs_NV))


def _draw(
    logits_BV: torch.Tensor,
    ids_BT: torch.Tensor,
    tokens: Sequence[int],
    sampling: generation_pb2.Sampling,
    allowed: Collection[int] | None,
) -> int:
    if sampling.HasField("repetition_penalty"):
        logits_BV = RepetitionPenaltyLogitsProcessor(sampling.repetition_penalty)(ids_BT, logits_BV)
    for token in tokens:
        logits_BV[0, token] -= sampling.frequency_penalty
    for token in set(tokens):
        logits_BV[0, token] -= sampling.presence_penalty
    for bias in sampling.logit_bias:
        logits_BV[0, bias.token] += bias.bias
    if allowed is not None:
        outside = [token for token in range(logits_BV.shape[1]) if token not in allowed]
        logits_BV[0, outside] = -torch.inf
    if sampling.temperature == 0:
        return int(logits_BV.argmax())
    warpers = LogitsProcessorList([TemperatureLogitsWarper(float(sampling.temperature))])
    if sampling.top_k:
        warpers.append(TopKLogitsWarper(sampling.top_k))
    if sampling.HasField("top_p") and sampling.top_p < 1:
        warpers.append(TopPLogitsWarper(sampling.top_p))
    if sampling.min_p:
        warpers.append(MinPLogitsWarper(sampling.min_p))
    cumulated_V = warpers(ids_BT, logits_BV).softmax(-1)[0].cumsum(-1)
    aim = uniform_at(sampling.seed, ids_BT.shape[1]) * float(cumulated_V[-1])
    return int(torch.searchsorted(cumulated_V, aim, right=True))
