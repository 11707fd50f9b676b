"""A reply that goes on: what its caller heard before and hears after, joined, is what an undisturbed one hears."""

import asyncio
from typing import ClassVar

import pytest
from silentswarm.core.v1 import generation_pb2
from silentswarm.core.v1.generation_pb2 import (
    FINISH_REASON_LENGTH,
    FINISH_REASON_STOP,
    FINISH_REASON_TOOL_CALLS,
    ReplyResume,
    Sampling,
    Timing,
)
from swarm_core.clock import ManualClock, SystemClock
from swarm_core.errors import BadRequest
from swarm_stage.engine.budget import KvBudget
from swarm_stage.engine.engine import Submit
from swarm_stage.engine.inbox import Inbox
from swarm_stage.engine.reply import Admitted, Finished, Likelihood, Request, Tokens
from swarm_stage.serve.event_writer import EventWriter
from swarm_stage.serve.replies import Replies
from swarm_stage.text.codec import load_text_codec
from swarm_stage.text.reply_shape import CallFormat, Marks, ReplyShape

from tests.unit.stage_text.text_models import write_model

SHAPE = ReplyShape(Marks("<think>", "</think>"), may_reason=True, calls=CallFormat.HERMES, tools=frozenset({"get"}))
CALL = '<tool_call>\n{"name": "get", "arguments": {"city": "Paris"}}\n</tool_call>'
TEXTS = {
    "plain": ("Grüße, 漢字 and more", ()),
    "stopped": ("one two three four", ("o three",)),
    "calls": (f"<think>\nHm, 漢.\n</think>\n\nI look.\n{CALL}\n{CALL}", ()),
    "half a mark": ("a <tool_ca", ()),
}


@pytest.fixture(scope="module")
def codec(tmp_path_factory):
    codec = load_text_codec(write_model(tmp_path_factory.mktemp("model")))
    yield codec
    codec.close()


def tell(codec, ids, stop, resume=None, breaks_at=None):
    """Events of a reply of these tokens, one a note; it breaks before that one, and goes on after those of resume."""
    request = Request("r", (1,), Sampling(), 999, codec.end_ids, lambda note: None, 0.0)
    writer = EventWriter(codec, stop, request, ManualClock(), SHAPE)
    start = 0
    if resume is not None:
        start = len(resume.ids)
        reason = writer.restore(resume)
        if reason:
            return writer.events([Admitted(1), Finished(reason, start, Timing())])
    events = writer.events([Admitted(1)])
    for place, token in enumerate(ids[start:breaks_at], start=start):
        events += writer.events([Tokens((token,), (Likelihood(-0.5 - place, ((token, -0.5),)),))])
        if writer.wants_conclusion:
            break
    if breaks_at is not None:
        return events
    return events + writer.events([Finished(FINISH_REASON_STOP, len(ids), Timing())])


@pytest.mark.parametrize("name", TEXTS)
def test_wherever_a_reply_breaks_its_events_go_on_with_the_next_one(name, codec):
    text, stop = TEXTS[name]
    ids = [*codec._tokenizer(text, add_special_tokens=False)["input_ids"], min(codec.end_ids)]
    whole = tell(codec, ids, stop)

    for breaks_at in range(len(ids) + 1):
        heard = tell(codec, ids, stop, breaks_at=breaks_at)
        told = [token for event in heard for token in event.tokens.ids]
        resumed = tell(codec, ids, stop, ReplyResume(ids=told, sequence=heard[-1].sequence))
        assert heard + resumed == whole, breaks_at


def test_a_rest_that_was_told_is_not_told_again(codec):
    text, stop = TEXTS["half a mark"]
    ids = [*codec._tokenizer(text, add_special_tokens=False)["input_ids"], min(codec.end_ids)]
    whole = tell(codec, ids, stop)
    resumed = tell(codec, ids, stop, ReplyResume(ids=ids, sequence=whole[-2].sequence, is_flushed=True))

    assert whole[-2].tokens.text and not whole[-2].tokens.ids
    assert resumed == whole[-1:]


class Letters:
    """Letters as tokens: 0 is "a". Token 25 ends a turn."""

    end_ids = frozenset({25})
    special_ids = frozenset[int]()
    default_sampling: ClassVar[dict[str, float]] = {}

    def prompt_ids(self, text):
        return [ord(letter) - 97 for letter in text]

    def decode(self, ids):
        return "".join(chr(97 + token) for token in ids)


def asked(resume, **fields):
    return generation_pb2.Generation(prompt="abc", resume=resume, **fields)


async def events_of(generation):
    inbox = Inbox(asyncio.get_running_loop())
    replies = Replies(inbox, Letters(), 26, KvBudget(100, 100), SystemClock())
    told = [event async for event in replies.generate("r", generation)]
    return told, [item for item in inbox.take(0) if isinstance(item, Submit)]


@pytest.mark.parametrize(
    ("ids", "fields", "reason"),
    [
        ([3, 25], {}, FINISH_REASON_STOP),
        ([3, 4], {"new_tokens_max": 2}, FINISH_REASON_LENGTH),
        ([3, 4, 5], {"stop": ["ef"]}, FINISH_REASON_STOP),
    ],
)
async def test_a_reply_that_was_over_is_ended_without_any_compute(ids, fields, reason):
    told, submitted = await events_of(asked(ReplyResume(ids=ids, sequence=7), **fields))
    done = told[-1].done

    assert not submitted
    assert [event.sequence for event in told] == [8]
    assert (done.finish_reason, done.prompt_tokens, done.completion_tokens) == (reason, 3, len(ids))
    assert done.timing.queue_ms + done.timing.detokenize_ms == pytest.approx(done.timing.total_ms, abs=5)


@pytest.mark.parametrize(
    ("resume", "fields"),
    [
        (ReplyResume(ids=[26], sequence=2), {}),
        (ReplyResume(ids=[1] * 101, sequence=2), {}),
        (ReplyResume(ids=[1, 2, 3], sequence=2), {"new_tokens_max": 2}),
        (ReplyResume(ids=[1], sequence=2, is_flushed=True), {}),
    ],
)
async def test_tokens_that_cannot_be_this_replys_are_refused(resume, fields):
    with pytest.raises(BadRequest) as refusal:
        await events_of(asked(resume, **fields))

    assert refusal.value.facts["field"] == "resume"


def test_calls_begun_before_the_break_still_say_why_the_reply_ended(codec):
    ids = [*codec._tokenizer(CALL, add_special_tokens=False)["input_ids"], min(codec.end_ids)]
    resumed = tell(codec, ids, (), ReplyResume(ids=ids, sequence=9))

    assert resumed[-1].done.finish_reason == FINISH_REASON_TOOL_CALLS
