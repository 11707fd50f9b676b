"""The documents of OpenAI's chat and models replies. Pure."""

import math
from dataclasses import dataclass
from typing import Any

from silentswarm.core.v1 import generation_pb2
from silentswarm.leader.v1 import models_pb2

Document = dict[str, Any]
_FINISH = {generation_pb2.FINISH_REASON_LENGTH: "length"}


@dataclass(frozen=True)
class ReplyNames:
    """What every document of one reply repeats. created: Unix seconds."""

    completion_id: str
    model: str
    created: int


def completion(names: ReplyNames, text: str, done: generation_pb2.GenerationEvent.Done) -> Document:
    """A whole reply."""
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": text, "refusal": None},
        "logprobs": None,
        "finish_reason": finish_reason(done),
    }
    document = {**_head(names, "chat.completion"), "choices": [choice], "usage": usage(done)}
    return document | _timing_extra(done)


def role_chunk(names: ReplyNames, with_usage: bool) -> Document:
    """The first chunk: who speaks. The role is never repeated."""
    return _chunk(names, {"role": "assistant", "content": ""}, None, with_usage)


def text_chunk(names: ReplyNames, text: str, with_usage: bool) -> Document:
    """More text."""
    return _chunk(names, {"content": text}, None, with_usage)


def last_chunk(names: ReplyNames, done: generation_pb2.GenerationEvent.Done, with_usage: bool) -> Document:
    """Why it ended, and where the time went."""
    return _chunk(names, {}, finish_reason(done), with_usage) | _timing_extra(done)


def usage_chunk(names: ReplyNames, done: generation_pb2.GenerationEvent.Done) -> Document:
    """The counts, sent only to clients that asked: naive ones read choices[0]."""
    return {**_head(names, "chat.completion.chunk"), "choices": [], "usage": usage(done)}


def usage(done: generation_pb2.GenerationEvent.Done) -> Document:
    """Counts in tokens: the prompt with its template, the completion with its end-of-turn token."""
    return {
        "prompt_tokens": done.prompt_tokens,
        "completion_tokens": done.completion_tokens,
        "total_tokens": done.prompt_tokens + done.completion_tokens,
    }


def finish_reason(done: generation_pb2.GenerationEvent.Done) -> str:
    """ "length" when the limit cut it, else "stop"."""
    return _FINISH.get(done.finish_reason, "stop")


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


def standing(queued: generation_pb2.GenerationEvent.Queued) -> str:
    """Where a request that waits stands, for people."""
    position = f"waiting, position {queued.position}"
    return f"{position}: {queued.reason}" if queued.reason else position


def model_document(model: models_pb2.Model, served_tokens: int = 0) -> Document:
    """One model of the list. served_tokens: the context it is served with, 0 when it is not.

    max_model_len: that, else the most the model takes, in tokens; absent when the model does not say.
    """
    document: Document = {
        "id": model.model_id,
        "object": "model",
        "created": model.created_s,
        "owned_by": "silentswarm",
        "swarm": {"state": model.state},
    }
    if served_tokens or model.context_tokens_max:
        document["max_model_len"] = served_tokens or model.context_tokens_max
    return document


def _head(names: ReplyNames, kind: str) -> Document:
    return {"id": names.completion_id, "object": kind, "created": names.created, "model": names.model}


def _chunk(names: ReplyNames, delta: Document, finish: str | None, with_usage: bool) -> Document:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    document = {**_head(names, "chat.completion.chunk"), "choices": [choice]}
    return document | ({"usage": None} if with_usage else {})


def _timing_extra(done: generation_pb2.GenerationEvent.Done) -> Document:
    """Nothing where nothing was measured: unknown is not zero."""
    return {"swarm": {"timing": timing(done.timing)}} if done.HasField("timing") else {}


def _number(number: float) -> float | None:
    return round(number, 3) if math.isfinite(number) else None
