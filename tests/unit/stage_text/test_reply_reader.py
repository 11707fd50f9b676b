"""Tokens of several tokenizers to the parts of a reply: whole characters, stop texts, marks that are special tokens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from swarm_stage.text.codec import load_text_codec
from swarm_stage.text.reply_reader import ReplyReader
from swarm_stage.text.reply_shape import PLAIN, CallFormat, Marks, ReplyShape

from tests.unit.stage_text.text_models import KINDS, write_model

TEXTS = (
    "안녕하세요, 세계!",
    "😀 starts with an emoji",
    "family 👩‍👩‍👧‍👦 flag 🇩🇪 skin 👍🏽",
    "e\u0301 and \u0928\u093f combine",
    "漢字かな交じり文",
    "plain words\n\n  and  spaces ",
)


@pytest.fixture(scope="module")
def codecs(tmp_path_factory):
    made = {kind: load_text_codec(write_model(tmp_path_factory.mktemp(kind), kind)) for kind in KINDS}
    yield made
    for codec in made.values():
        codec.close()


def ids_of(codec, text):
    return codec._tokenizer(text, add_special_tokens=False)["input_ids"]


def read(codec, ids, shape=PLAIN, stop=()):
    """Content by token, the rest, and the reader."""
    reader = ReplyReader(codec, shape, stop, codec.end_ids)
    parts = []
    for token in ids:
        parts.append(reader.push(token))
        if reader.is_stopped:
            break
    return [*parts, reader.finish()], reader


def content(parts):
    return "".join(each.content for each in parts)


@pytest.mark.parametrize("kind", ["byte_level", "byte_fallback"])
@pytest.mark.parametrize("text", TEXTS)
def test_a_streamed_reply_is_its_text_and_never_a_broken_character(kind, text, codecs):
    codec = codecs[kind]
    parts, _ = read(codec, ids_of(codec, text))

    assert content(parts) == text
    assert not any("\ufffd" in each.content for each in parts)


@pytest.mark.parametrize("kind", ["byte_level", "byte_fallback"])
@given(
    text=st.text(st.sampled_from("a bé漢😀👩\u200d👧\u0301\n"), max_size=20),
    stop=st.sampled_from(["漢", "😀", "b\n", "é漢"]),
)
def test_a_stop_text_ends_the_reply_before_it_wherever_tokens_are_cut(kind, text, stop, codecs):
    codec = codecs[kind]
    parts, reader = read(codec, ids_of(codec, text), stop=(stop,))

    assert content(parts) == text.split(stop)[0]
    assert reader.is_stopped == (stop in text)


@pytest.mark.parametrize("kind", ["byte_level", "byte_fallback"])
def test_nothing_of_a_stop_text_over_four_tokens_is_shown(kind, codecs):
    codec = codecs[kind]
    ids = [token for letters in ("ABC", "DE", "FG", "HI", "J", "KL") for token in ids_of(codec, letters)]
    if kind == "byte_fallback":  # each letters' own first space
        ids = ids_of(codec, "ABCDEFGHIJKL")
    parts, reader = read(codec, ids, stop=("DEFGHIJ",))

    assert content(parts) == "ABC" and reader.is_stopped


def test_an_emoji_at_the_start_is_one_piece(codecs):
    for kind in ("byte_level", "byte_fallback"):
        parts, _ = read(codecs[kind], ids_of(codecs[kind], "😀ok"))
        first = next(each.content for each in parts if each.content)

        assert first.startswith("😀")


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_the_bytes_of_all_tokens_joined_are_the_text(kind, codecs):
    codec = codecs[kind]
    for text in TEXTS if kind != "metaspace" else ("hello world", "the weather is fine"):
        ids = ids_of(codec, text)
        joined = b"".join(codec.token_bytes[token] for token in ids)

        assert joined.removeprefix(b" " if kind != "byte_level" else b"") == text.encode()


def test_stop_texts_are_looked_for_in_the_content_alone(codecs):
    codec = codecs["byte_level"]
    shape = ReplyShape(Marks("<think>", "</think>"), may_reason=True)
    ids = ids_of(codec, "<think>STOP here</think>and STOP there")
    parts, reader = read(codec, ids, shape, ("STOP",))

    assert content(parts) == "and "
    assert "".join(each.reasoning for each in parts) == "STOP here"
    assert reader.is_stopped


def test_tokens_of_reasoning_are_counted_with_their_marks(codecs):
    codec = codecs["byte_level"]
    shape = ReplyShape(Marks("<think>", "</think>"), may_reason=True)
    reasoning, answer = ids_of(codec, "<think>ab</think>"), ids_of(codec, "xyz")

    assert read(codec, reasoning + answer, shape)[1].reasoning_tokens == len(reasoning)
    opened = ReplyShape(Marks("<think>", "</think>"), is_reasoning=True)
    assert read(codec, ids_of(codec, "ab"), opened)[1].reasoning_tokens == 2


def test_marks_that_are_special_tokens_are_read_and_others_stay_unseen(codecs):
    codec = codecs["byte_level"]
    shape = ReplyShape(calls=CallFormat.MISTRAL_LIST, tools=frozenset({"get"}))
    ids = ids_of(codec, 'Well.[TOOL_CALLS][{"name": "get", "arguments": {"a": "漢"}}]<|im_start|></s>')
    parts, reader = read(codec, ids, shape)
    calls = [call for each in parts for call in each.calls]

    assert content(parts) == "Well." and reader.calls == 1
    assert "".join(call.arguments for call in calls) == '{"a": "漢"}'
    assert len(calls) > 3 and {call.index for call in calls} == {0}
    assert content(read(codec, ids_of(codec, "a[TOOL_CALLS]b"))[0]) == "ab"
