"""How likely tokens were, in OpenAI's two shapes. Pure."""

import math
from collections.abc import Sequence
from typing import TypeAlias

from silentswarm.core.v1 import generation_pb2

from swarm_gateway.openai.replies.asked import Document

Likelihood: TypeAlias = generation_pb2.GenerationEvent.TokenLogprob
NEVER = -9999.0  # what a probability of zero is told as: JSON knows no infinity


def content_logprobs(likelihoods: Sequence[Likelihood]) -> Document:
    """Chat's shape: an entry for each token, whose bytes joined are the text."""
    return {
        "content": [
            {
                **_entry(likelihood.token, likelihood.logprob),
                "top_logprobs": [_entry(other.token, other.logprob) for other in likelihood.top],
            }
            for likelihood in likelihoods
        ],
        "refusal": None,
    }


def legacy_logprobs(likelihoods: Sequence[Likelihood], offset: int) -> Document:
    """Plain completions' shape: lists side by side. offset: characters of the text before these tokens."""
    tokens, offsets = [], []
    for likelihood in likelihoods:
        tokens.append(token_text(likelihood.token))
        offsets.append(offset)
        offset += sum(byte & 0xC0 != 0x80 for byte in likelihood.token)  # characters that begin in it
    return {
        "tokens": tokens,
        "token_logprobs": [_told(likelihood.logprob) for likelihood in likelihoods],
        "top_logprobs": [_by_text(likelihood) for likelihood in likelihoods],
        "text_offset": offsets,
    }


def token_text(token: bytes) -> str:
    """A token as text; one that holds a part of a character is told by its bytes, as OpenAI does."""
    try:
        return token.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in token)


def _by_text(likelihood: Likelihood) -> Document:
    """Alternatives by their text; of several with one text the likeliest."""
    told: Document = {}
    for other in likelihood.top:
        told.setdefault(token_text(other.token), _told(other.logprob))
    return told


def _entry(token: bytes, logprob: float) -> Document:
    return {"token": token_text(token), "logprob": _told(logprob), "bytes": list(token)}


def _told(logprob: float) -> float:
    return round(logprob, 6) if math.isfinite(logprob) else NEVER
