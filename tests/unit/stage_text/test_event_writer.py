"""Parts of a reply as events: calls, reasoning, likelihoods, and why it ended."""

import pytest
from silentswarm.core.v1 import generation_pb2
from silentswarm.core.v1.generation_pb2 import (
    FINISH_REASON_LENGTH,
    FINISH_REASON_STOP,
    FINISH_REASON_TOOL_CALLS,
    Sampling,
    Timing,
)
from swarm_core.clock import ManualClock
from swarm_stage.engine.reply import Admitted, Finished, Likelihood, Request, Tokens
from swarm_stage.serve.event_writer import EventWriter
from swarm_stage.text.codec import load_text_codec
from swarm_stage.text.reply_shape import PLAIN, CallFormat, Marks, ReplyShape

from tests.unit.stage_text.text_models import write_model

SHAPE = ReplyShape(Marks("<think>", "</think>"), may_reason=True, calls=CallFormat.HERMES, tools=frozenset({"get"}))
CALL = '<tool_call>\n{"name": "get", "arguments": {"city": "Paris"}}\n</tool_call>'


@pytest.fixture(scope="module")
def codec(tmp_path_factory):
    codec = load_text_codec(write_model(tmp_path_factory.mktemp("model")))
    yield codec
    codec.close()


def tell(codec, text, shape=SHAPE, reason=FINISH_REASON_STOP, stop=(), likely=False, each=1):
    """Events of a reply of this text, in notes of `each` tokens."""
    ids = codec._tokenizer(text, add_special_tokens=False)["input_ids"]
    request = Request("r", (1,), Sampling(), 999, codec.end_ids, lambda note: None, 0.0)
    writer = EventWriter(codec, stop, request, ManualClock(), shape)
    events = writer.events([Admitted(1)])
    for start in range(0, len(ids), each):
        part = tuple(ids[start : start + each])
        likelihoods = tuple(Likelihood(-0.5, ((token, -0.5), (2, -3.0))) for token in part) if likely else ()
        events += writer.events([Tokens(part, likelihoods)])
        if writer.wants_conclusion:
            break
    return events + writer.events([Finished(reason, len(ids), Timing())])


def joined(events):
    batches = [event.tokens for event in events]
    calls = {}
    for call in (call for batch in batches for call in batch.tool_calls):
        calls[call.index] = (
            calls.get(call.index, ("", ""))[0] + call.name,
            calls.get(call.index, ("", ""))[1] + call.arguments,
        )
    return "".join(batch.text for batch in batches), "".join(batch.reasoning for batch in batches), calls


@pytest.mark.parametrize("each", [1, 3, 1000])
def test_a_reply_is_told_in_parts_however_its_tokens_come(each, codec):
    events = tell(codec, f"<think>\nHm, 漢.\n</think>\n\nI look.\n{CALL}\n{CALL}", each=each)

    assert joined(events) == ("I look.", "Hm, 漢.", {0: ("get", '{"city": "Paris"}'), 1: ("get", '{"city": "Paris"}')})
    assert events[-1].done.finish_reason == FINISH_REASON_TOOL_CALLS
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))


def test_tokens_of_reasoning_are_among_those_of_the_reply(codec):
    events = tell(codec, "<think>ab</think>cd")
    done = events[-1].done

    assert 0 < done.reasoning_tokens < done.completion_tokens


def test_a_reply_cut_inside_a_call_or_reasoning_was_cut(codec):
    call = tell(codec, CALL[:-30], reason=FINISH_REASON_LENGTH)
    reasoning = tell(codec, "<think>Let me", reason=FINISH_REASON_LENGTH)

    assert call[-1].done.finish_reason == reasoning[-1].done.finish_reason == FINISH_REASON_LENGTH
    assert joined(call)[2][0][0] == "get"
    assert joined(reasoning)[:2] == ("", "Let me")


def test_a_stop_text_in_the_content_ends_it_before_any_call(codec):
    events = tell(codec, f"Well STOP {CALL}", stop=["STOP"], each=1000)

    assert joined(events) == ("Well ", "", {})
    assert events[-1].done.finish_reason == FINISH_REASON_STOP


@pytest.mark.parametrize("each", [1, 4, 1000])
def test_every_token_of_the_content_has_its_likelihood_and_others_have_none(each, codec):
    events = tell(codec, "<think>ab</think>wörld 漢", likely=True, each=each)
    batches = [event.tokens for event in events if event.WhichOneof("event") == "tokens"]
    told = [batch for batch in batches if batch.logprobs]

    assert all(len(batch.logprobs) == len(batch.ids) for batch in told)
    assert b"".join(one.token for batch in told for one in batch.logprobs).decode() == "wörld 漢"
    assert all(one.top[0].id == token for batch in told for one, token in zip(batch.logprobs, batch.ids, strict=True))
    assert joined(events)[:2] == ("wörld 漢", "ab")


def test_an_end_of_turn_has_a_likelihood_and_no_bytes_and_a_name_as_an_alternative(codec):
    end = min(codec.end_ids)
    request = Request("r", (1,), Sampling(), 9, codec.end_ids, lambda note: None, 0.0)
    writer = EventWriter(codec, (), request, ManualClock(), PLAIN)
    told = writer.events([Admitted(1), Tokens((end,), (Likelihood(-0.1, ((end, -0.1),)),))])[-1].tokens.logprobs

    assert told[0].token == b"" and told[0].top[0].token == codec.token_bytes[end] != b""


@pytest.mark.parametrize("kind", ["byte_level", "byte_fallback"])
def test_bytes_of_likelihoods_join_to_the_text_from_its_first_token_on(kind, tmp_path):
    codec = load_text_codec(write_model(tmp_path, kind))
    events = tell(codec, "Hello wörld 😀", PLAIN, likely=True)
    tokens = [one.token for event in events for one in event.tokens.logprobs]

    assert b"".join(tokens).decode() == joined(events)[0] == "Hello wörld 😀"
    codec.close()


def test_a_model_without_a_tokenizer_tells_likelihoods_of_ids():
    request = Request("r", (1,), Sampling(), 9, frozenset(), lambda note: None, 0.0)
    writer = EventWriter(None, (), request, ManualClock())
    batch = writer.events([Admitted(1), Tokens((7,), (Likelihood(-0.5, ((7, -0.5),)),))])[-1].tokens

    assert list(batch.ids) == [7] and batch.logprobs[0].logprob == -0.5
    assert isinstance(batch, generation_pb2.GenerationEvent.TokenBatch)
