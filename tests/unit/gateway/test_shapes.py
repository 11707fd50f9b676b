"""The documents of a reply: every measured number is told, and frames are the documents' bytes."""

import json

from hypothesis import given
from hypothesis import strategies as st
from silentswarm.core.v1 import generation_pb2
from swarm_gateway.openai import frames, shapes
from swarm_gateway.sse import framed

LISTS = {"stage_ms": "stage{}_ms", "prefill_stage_ms": "prefill_stage{}_ms"}
NAMES = shapes.ReplyNames("chatcmpl-1", "tiny", 1)


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
    told = shapes.timing(measured())

    for number, field in enumerate(generation_pb2.Timing.DESCRIPTOR.fields, start=1):
        if field.name in LISTS:
            assert [told.pop(LISTS[field.name].format(at)) for at in (0, 1)] == [number, number + 0.5]
        else:
            assert told.pop(field.name) == ("relay" if field.name == "route" else number)
    assert told == {}


def test_what_an_older_stage_does_not_measure_is_left_out():
    told = shapes.timing(generation_pb2.Timing(queue_ms=1, stage_ms=[2], route="local"))

    assert set(told) == {"queue_ms", "prefill_ms", "decode_ms", "stage0_ms", "link_ms", "bytes_per_token", "route"}


@given(text=st.text(), model=st.text(min_size=1), with_usage=st.booleans())
def test_a_frame_is_the_bytes_of_its_chunk(text, model, with_usage):
    names = shapes.ReplyNames("chatcmpl-1", model, 1)
    chunk = shapes.text_chunk(names, text, with_usage)
    expected = framed(json.dumps(chunk, ensure_ascii=False, separators=(",", ":")))

    assert frames.TextFrames(names, with_usage).frame(text) == expected == frames.event_of(chunk)


def test_a_model_cannot_be_named_so_that_the_text_lands_in_its_name():
    names = shapes.ReplyNames("chatcmpl-1", 'a"content":""b', 1)
    event = frames.TextFrames(names, False).frame("hi").decode()
    chunk = json.loads(event.removeprefix("data: "))

    assert chunk["model"] == 'a"content":""b'
    assert chunk["choices"][0]["delta"] == {"content": "hi"}


def test_where_a_request_stands_is_told_in_one_line():
    queued = generation_pb2.GenerationEvent.Queued(position=3, reason="8 of 8 places are taken")

    assert shapes.standing(queued) == "waiting, position 3: 8 of 8 places are taken"
    assert shapes.standing(generation_pb2.GenerationEvent.Queued(position=1)) == "waiting, position 1"
