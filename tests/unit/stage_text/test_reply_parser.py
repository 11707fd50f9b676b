"""Content, reasoning and calls come out of a reply's text, however it is cut."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from swarm_stage.text.reply_parser import ReplyParser
from swarm_stage.text.reply_shape import CallFormat, Marks, ReplyShape

THINK = Marks("<think>", "</think>")
TOOLS = frozenset({"get", "put"})
HERMES = ReplyShape(THINK, may_reason=True, calls=CallFormat.HERMES, tools=TOOLS)
LLAMA = ReplyShape(calls=CallFormat.LLAMA, tools=TOOLS)
LISTED = ReplyShape(calls=CallFormat.MISTRAL_LIST, tools=TOOLS)
ARGS = ReplyShape(calls=CallFormat.MISTRAL_ARGS, tools=TOOLS)
SHAPES = (
    ReplyShape(),
    ReplyShape(THINK, may_reason=True),
    ReplyShape(THINK, is_reasoning=True),
    HERMES,
    LLAMA,
    LISTED,
    ARGS,
)
# Pieces that marks are made of, so that what is drawn comes close to them all the time.
MARKS = ("<think>", "</think>", "<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[ARGS]", "<|python_tag|>")
CALLS = ('{"name": "get", "arguments": {"a": "}\\""}}', '{"name":"put","parameters":{}}')
CRUMBS = (*'<>/[]{},;:"\\ \n3aé', "think>", "put", '"name"', '"arguments"')
ALPHABET = (*MARKS, *CALLS, *CRUMBS)


def read(shape, pieces):
    """Content, reasoning, and name and arguments of each call."""
    parser = ReplyParser(shape)
    content = reasoning = ""
    calls: dict[int, list[str]] = {}
    for parts in [*map(parser.push, pieces), parser.finish()]:
        content += parts.content
        reasoning += parts.reasoning
        for call in parts.calls:
            assert (call.index in calls) != bool(call.name)  # a name comes with the first delta and with no other
            told = calls.setdefault(call.index, [call.name, ""])
            told[1] += call.arguments
    return content, reasoning, [tuple(calls[index]) for index in sorted(calls)]


@pytest.mark.parametrize("shape", SHAPES)
@given(text=st.lists(st.sampled_from(ALPHABET), max_size=14).map("".join), data=st.data())
def test_any_cut_of_any_text_gives_the_same_parts(shape, text, data):
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=6)))
    pieces = [text[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    whole = read(shape, [text])

    assert read(shape, pieces) == whole
    assert read(shape, list(text)) == whole


@given(st.lists(st.sampled_from(ALPHABET), max_size=14))
def test_a_plain_reply_is_its_text(pieces):
    assert read(ReplyShape(), pieces) == ("".join(pieces), "", [])


@given(st.lists(st.sampled_from(ALPHABET), max_size=14))
def test_no_mark_of_reasoning_ever_leaks(pieces):
    content, reasoning, _ = read(ReplyShape(THINK, may_reason=True), pieces)

    # A mark that comes out must have been put together by others being taken out of its middle.
    whole = "".join(pieces)
    for mark in (THINK.open, THINK.close):
        if "<<" not in whole and "</<" not in whole:
            assert mark not in content and mark not in reasoning


def test_reasoning_is_parted_from_the_answer():
    assert read(HERMES, ["<think>\nWell.\n</think>\n\nYes."]) == ("Yes.", "Well.", [])
    assert read(ReplyShape(THINK, is_reasoning=True), ["Well.\n</th", "ink>Yes."]) == ("Yes.", "Well.", [])
    assert read(HERMES, ["\n<think>", "\n\n", "</think>", "\n\nYes."]) == ("Yes.", "", [])


def test_reasoning_that_is_cut_off_is_reasoning():
    assert read(HERMES, ["<think>I wonder whe"]) == ("", "I wonder whe", [])
    assert read(HERMES, ["<think>I wonder </thi"]) == ("", "I wonder </thi", [])


def test_a_mark_closed_twice_does_not_leak():
    assert read(HERMES, ["<think>a</think>b</think>c"]) == ("bc", "a", [])


@pytest.mark.parametrize("rest", ["\n<", "\n</tool_", "\n</tool_call", "\n</tool_call>\n</tool_call"])
def test_a_reply_that_is_cut_within_the_mark_behind_a_call_does_not_show_it(rest):
    call = '<tool_call>\n{"name": "get", "arguments": {}}'

    assert read(HERMES, [call, rest]) == ("", "", [("get", "{}")])
    assert read(HERMES, ["1 </tool_"]) == ("1 </tool_", "", [])


def test_two_calls_are_two_calls_with_an_index_each():
    one = '<tool_call>\n{"name": "get", "arguments": {"city": "Paris", "n": [1, {"a": "}"}]}}\n</tool_call>'
    two = '<tool_call>\n{"name": "put", "arguments": {}}\n</tool_call>'
    content, reasoning, calls = read(HERMES, ["<think>hm</think>\n\n", one, "\n", two])

    assert (content, reasoning) == ("", "hm")
    assert [name for name, _ in calls] == ["get", "put"]
    assert json.loads(calls[0][1]) == {"city": "Paris", "n": [1, {"a": "}"}]}
    assert calls[1][1] == "{}"


def test_text_before_a_call_is_content_without_the_blanks_between():
    text = 'I will look.\n\n<tool_call>\n{"name": "get", "arguments": {}}\n</tool_call>\n'
    assert read(HERMES, [text]) == ("I will look.", "", [("get", "{}")])


def test_blanks_that_no_mark_follows_are_kept():
    assert read(HERMES, ["  a \n", "\n b  "]) == ("  a \n\n b  ", "", [])


def test_a_call_cut_inside_its_arguments_is_told_as_far_as_it_came():
    assert read(HERMES, ['<tool_call>\n{"name": "get", "arguments": {"city": "Par']) == (
        "",
        "",
        [("get", '{"city": "Par')],
    )
    assert read(HERMES, ['<tool_call>\n{"name": "ge']) == ("", "", [])


def test_arguments_before_the_name_wait_for_it():
    text = '<tool_call>{"arguments": {"a": 1}, "name": "get"}</tool_call>'
    assert read(HERMES, list(text)) == ("", "", [("get", '{"a": 1}')])


def test_a_call_without_arguments_has_none():
    assert read(HERMES, ['<tool_call>{"name": "get"}</tool_call>'])[2] == [("get", "{}")]


def test_llamas_calls_have_no_mark_or_a_special_token():
    call = '{"name": "get", "parameters": {"a": 1}}'
    assert read(LLAMA, [call]) == ("", "", [("get", '{"a": 1}')])
    assert read(LLAMA, ["<|python_tag|>", call, "; ", call])[2] == [("get", '{"a": 1}')] * 2
    assert read(LLAMA, ['{"type": "function", ', call[1:]])[2] == [("get", '{"a": 1}')]


def test_an_object_that_is_no_call_is_content():
    for text in ('{"city": "Paris"}', '{"name": "nobody", "parameters": {}}', '{"name": "Ann"', "{1}", "{"):
        assert read(LLAMA, [text]) == (text, "", [])


def test_mistrals_calls_come_in_a_list_or_behind_their_names():
    listed = '[TOOL_CALLS][{"name": "get", "arguments": {"a": 1}}, {"name": "put", "arguments": {"b": [2]}}]'
    assert read(LISTED, [listed]) == ("", "", [("get", '{"a": 1}'), ("put", '{"b": [2]}')])
    named = 'Well.[TOOL_CALLS]get[ARGS]{"a": 1}[TOOL_CALLS]put[CALL_ID]123456789[ARGS]{"b": [2]}'
    assert read(ARGS, [named]) == ("Well.", "", [("get", '{"a": 1}'), ("put", '{"b": [2]}')])


def test_marks_of_calls_are_text_when_nothing_may_be_called():
    text = '<tool_call>{"name": "get"}</tool_call>'
    assert read(ReplyShape(THINK, may_reason=True), [text]) == (text, "", [])
