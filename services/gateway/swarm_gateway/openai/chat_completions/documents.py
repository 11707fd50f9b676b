"""The documents of chat replies, whole and in chunks. Pure."""

from collections.abc import Sequence

from swarm_gateway.openai.replies.asked import Document, Done, ReplyNames
from swarm_gateway.openai.replies.counts import finish_reason, swarm_extra, usage


def head(names: ReplyNames, kind: str) -> Document:
    """What every document of a reply begins with."""
    return {"id": names.completion_id, "object": kind, "created": names.created, "model": names.model}


def completion(names: ReplyNames, choices: Sequence[Document], dones: Sequence[Done]) -> Document:
    """A whole reply."""
    document = {**head(names, "chat.completion"), "choices": list(choices), "usage": usage(dones)}
    return document | swarm_extra(dones)


def chunk(
    names: ReplyNames,
    choice: int,
    delta: Document,
    with_usage: bool,
    logprobs: Document | None = None,
    finish: str | None = None,
) -> Document:
    """A piece of one choice. with_usage: the stream ends with counts, so every chunk before has none."""
    told = {"index": choice, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
    document = {**head(names, "chat.completion.chunk"), "choices": [told]}
    return document | ({"usage": None} if with_usage else {})


def last_chunk(names: ReplyNames, choice: int, done: Done, with_usage: bool) -> Document:
    """Why a choice ended, and where the time went."""
    return chunk(names, choice, {}, with_usage, finish=finish_reason(done)) | swarm_extra([done])


def usage_chunk(names: ReplyNames, dones: Sequence[Done]) -> Document:
    """The counts, sent only to clients that asked: naive ones read choices[0]."""
    return {**head(names, "chat.completion.chunk"), "choices": [], "usage": usage(dones)}
