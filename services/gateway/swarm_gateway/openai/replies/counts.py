"""Numbers and ends of replies, as every endpoint tells them. Pure."""

import math
from collections.abc import Sequence

from silentswarm.core.v1 import generation_pb2

from swarm_gateway.openai.replies.asked import Document, Done

_FINISH = {
    generation_pb2.FINISH_REASON_LENGTH: "length",
    generation_pb2.FINISH_REASON_TOOL_CALLS: "tool_calls",
}


def finish_reason(done: Done) -> str:
    """ "length" when the limit cut it, "tool_calls" when it wants answers, else "stop"."""
    return _FINISH.get(done.finish_reason, "stop")


def usage(dones: Sequence[Done], choices_per_prompt: int = 0) -> Document:
    """Counts in tokens: each prompt once, with its template; every choice, with its end-of-turn token.

    dones: of every choice, in order. choices_per_prompt: 0 when all are of one prompt.
    """
    prompts = sum(done.prompt_tokens for done in dones[:: choices_per_prompt or len(dones)])
    completions = sum(done.completion_tokens for done in dones)
    document: Document = {
        "prompt_tokens": prompts,
        "completion_tokens": completions,
        "total_tokens": prompts + completions,
    }
    if reasoned := sum(done.reasoning_tokens for done in dones):
        document["completion_tokens_details"] = {"reasoning_tokens": reasoned}
    return document


def swarm_extra(dones: Sequence[Done]) -> Document:
    """Where the time went: of the first choice, and of each when there are several.

    Nothing where nothing was measured: unknown is not zero.
    """
    if not any(done.HasField("timing") for done in dones):
        return {}
    timings = [timing(done.timing) if done.HasField("timing") else None for done in dones]
    return {"swarm": {"timing": timings[0]} | ({"timings": timings} if len(timings) > 1 else {})}


def timing(measured: generation_pb2.Timing) -> Document:
    """swarm.timing, in ms: the whole, its parts, and per token every stage's compute and what the links took beyond it.

    Every field of core.v1.Timing under its name, a list as one key a stage. A stage that does not measure the whole
    leaves out what came with it: unknown is not zero.
    """
    document = {
        "queue_ms": _number(measured.queue_ms),
        "prefill_ms": _number(measured.prefill_ms),
        "decode_ms": _number(measured.decode_ms),
        **{f"stage{at}_ms": _number(ms) for at, ms in enumerate(measured.stage_ms)},
        "link_ms": _number(measured.link_ms),
        "bytes_per_token": _number(measured.bytes_per_token),
        "route": measured.route,
    }
    if measured.total_ms <= 0:
        return document
    return document | {
        "total_ms": _number(measured.total_ms),
        "tokenize_ms": _number(measured.tokenize_ms),
        "sample_ms": _number(measured.sample_ms),
        "wait_ms": _number(measured.wait_ms),
        "detokenize_ms": _number(measured.detokenize_ms),
        **{f"prefill_stage{at}_ms": _number(ms) for at, ms in enumerate(measured.prefill_stage_ms)},
        "batch_mean": _number(measured.batch_mean),
    }


def _number(number: float) -> float | None:
    return round(number, 3) if math.isfinite(number) else None
