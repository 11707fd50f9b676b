"""The documents of a reply: every measured number is told, and frames are the documents' bytes."""

import json

from hypothesis import given
from hypothesis import strategies as st
from silentswarm.core.v1 import generation_pb2
from swarm_gateway.openai.chat_completions.documents import chunk
from swarm_gateway.openai.replies.asked import ReplyNames
from swarm_gateway.openai.replies.counts import timing
from swarm_gateway.openai.replies.frames import TextFrames, event_of
from swarm_gateway.openai.replies.logprobs import content_logprobs, legacy_logprobs
from swarm_gateway.openai.replies.pieces import standing_of
from swarm_gateway.sse import framed

LISTS = {"stage_ms": "stage{}_ms", "prefill_stage_ms": "prefill_stage{}_ms"}
TokenLogprob = generation_pb2.GenerationEvent.TokenLogprob
Alternative = generation_pb2.GenerationEvent.Alternative


def measured() -> generation_pb2.Timing:
    """A timing with another number in every field."""
    timing = generation_pb2.Timing(route="relay")
    for number, field in enumerate(generation_pb2.Timing.DESCRIPTOR.fields, start=1):
        if field.is_repeated:
            getattr(timing, field.name).extend([number, number + 0.5])
        elif field.name != "route":
            setattr(timing, field.name, number)
    return timing


def test_every_field_of_a_timing_is_told_under_its_name():
    told = timing(measured())

    for number, field in enumerate(generation_pb2.Timing.DESCRIPTOR.fields, start=1):
        if field.name in LISTS:
            assert [told.pop(LISTS[field.name].format(at)) for at in (0, 1)] == [number, number + 0.5]
        else:
            assert told.pop(field.name) == ("relay" if field.name == "route" else number)
    assert told == {}


def test_what_an_older_stage_does_not_measure_is_left_out():
    told = timing(generation_pb2.Timing(queue_ms=1, stage_ms=[2], route="local"))

    assert set(told) == {"queue_ms", "prefill_ms", "decode_ms", "stage0_ms", "link_ms", "bytes_per_token", "route"}


@given(text=st.text(), model=st.text(min_size=1), with_usage=st.booleans())
def test_a_frame_is_the_bytes_of_its_chunk(text, model, with_usage):
    names = ReplyNames("chatcmpl-1", model, 1)
    told = chunk(names, 2, {"content": text}, with_usage)
    expected = framed(json.dumps(told, ensure_ascii=False, separators=(",", ":")))

    frames = TextFrames(chunk(names, 2, {"content": ""}, with_usage), "content")
    assert frames.frame(text) == expected == event_of(told)


def test_a_model_cannot_be_named_so_that_the_text_lands_in_its_name():
    names = ReplyNames("chatcmpl-1", 'a"content":""b', 1)
    event = TextFrames(chunk(names, 0, {"content": ""}, False), "content").frame("hi").decode()
    told = json.loads(event.removeprefix("data: "))

    assert told["model"] == 'a"content":""b'
    assert told["choices"][0]["delta"] == {"content": "hi"}


def test_a_token_is_told_by_its_bytes_and_its_text_where_it_has_one():
    half, whole = TokenLogprob(logprob=-0.5, token=b"\xf0\x9f"), TokenLogprob(logprob=float("-inf"), token=b"a")
    half.top.append(Alternative(id=3, logprob=-0.25, token="é".encode()))
    told = content_logprobs([half, whole])["content"]

    assert told[0] | {"top_logprobs": []} == {
        "token": "bytes:\\xf0\\x9f", "logprob": -0.5, "bytes": [0xF0, 0x9F], "top_logprobs": []
    }  # fmt: skip
    assert told[0]["top_logprobs"] == [{"token": "é", "logprob": -0.25, "bytes": [0xC3, 0xA9]}]
    assert (told[1]["token"], told[1]["logprob"]) == ("a", -9999.0)


def test_the_older_shape_says_where_each_token_begins():
    tokens = [TokenLogprob(logprob=-1, token=token) for token in (b"H", "é ".encode(), b"")]
    tokens[0].top.extend([Alternative(logprob=-1, token=b"H"), Alternative(logprob=-2, token=b"J")])
    told = legacy_logprobs(tokens, 10)

    assert told["tokens"] == ["H", "é ", ""]
    assert told["text_offset"] == [10, 11, 13]
    assert told["token_logprobs"] == [-1, -1, -1]
    assert told["top_logprobs"] == [{"H": -1, "J": -2}, {}, {}]


def test_where_a_request_stands_is_told_in_one_line():
    queued = generation_pb2.GenerationEvent.Queued(position=3, reason="8 of 8 places are taken")

    assert standing_of(queued) == "waiting, position 3: 8 of 8 places are taken"
    assert standing_of(generation_pb2.GenerationEvent.Queued(position=1)) == "waiting, position 1"
