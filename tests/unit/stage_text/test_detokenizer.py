"""Streamed text is the decoded text, whatever the tokenizer does with bytes and spaces."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from swarm_stage.text.detokenizer import Detokenizer
from tokenizers import Tokenizer, decoders, models
from transformers.convert_slow_tokenizer import bytes_to_unicode

PIECES = ["▁", "▁▁", "▁Hello", "llo", "a", "é", "你", "▁好", "\n"]


class Codec:
    """A tokenizers.Tokenizer seen as a decoder; id 0 is a special token, the last id has no text at all."""

    special_ids = frozenset({0})

    def __init__(self, vocabulary, decoder):
        self.vocabulary = ["<s>", *vocabulary]
        ids = {token: token_id for token_id, token in enumerate(self.vocabulary)}
        self._tokenizer = Tokenizer(models.BPE(vocab=ids, merges=[]))
        self._tokenizer.decoder = decoder
        self.last_id = len(self.vocabulary)  # beyond the vocabulary: decodes to nothing

    def decode(self, ids):
        return self._tokenizer.decode([token_id for token_id in ids if token_id not in self.special_ids])


def byte_level():
    """As GPT-2, Llama 3, Qwen and SmolLM: a token is any bytes."""
    alphabet = bytes_to_unicode()
    pairs = [alphabet[0xE4] + alphabet[0xBD], alphabet[0xA0] + "a", "Ġ" + alphabet[0xF0], "ab", "Ġthe"]
    return Codec([*(alphabet[byte] for byte in range(256)), *pairs], decoders.ByteLevel())


def byte_fallback():
    """As Llama 2, Mistral, Phi-3: pieces, bytes for what is none, and the first space goes."""
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    return Codec([*PIECES, *(f"<0x{byte:02X}>" for byte in range(256))], decoders.Sequence(steps))


def fused_bytes():
    """As Gemma: the same without losing the first space."""
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    return Codec([*PIECES, *(f"<0x{byte:02X}>" for byte in range(256))], decoders.Sequence(steps))


def metaspace():
    """As T5-like vocabularies."""
    return Codec(PIECES, decoders.Metaspace())


CODECS = {build.__name__: build() for build in (byte_level, byte_fallback, fused_bytes, metaspace)}


def stream(codec, ids):
    detokenizer = Detokenizer(codec)
    return [detokenizer.push(token_id) for token_id in ids] + [detokenizer.finish()]


def is_text_of(pieces, text):
    """Whether they are that text; the bytes of a character it ends inside may be left out."""
    joined = "".join(pieces)
    return text.startswith(joined) and not text[len(joined) :].strip("\ufffd")


@pytest.mark.parametrize("name", ["byte_level", "metaspace"])
@given(data=st.data())
def test_any_ids_stream_to_their_text(name, data):
    codec = CODECS[name]
    ids = data.draw(st.lists(st.integers(0, codec.last_id), max_size=24))

    assert is_text_of(stream(codec, ids), codec.decode(ids))


@given(st.lists(st.sampled_from([0x41, 0xE4, 0xBD, 0xA0, 0xF0, 0x9F, 0xFF, 0x80]), max_size=24))
def test_broken_bytes_stream_to_their_text(data):
    """Half characters, lone continuations, bytes of no encoding."""
    codec = CODECS["byte_level"]
    ids = [byte + 1 for byte in data]

    assert is_text_of(stream(codec, ids), codec.decode(ids))


@pytest.mark.parametrize("name", ["byte_fallback", "fused_bytes"])
@given(text=st.text(st.sampled_from("aé你好😀 \n\u200d👩"), max_size=12), lead=st.integers(0, 9))
def test_bytes_behind_pieces_stream_to_their_text(name, text, lead):
    """Characters that are no piece come as up to four byte tokens."""
    codec = CODECS[name]
    ids = [lead, 0]
    for letter in text.replace(" ", "▁"):
        piece = codec.vocabulary.index(letter) if letter in codec.vocabulary else None
        ids += [piece] if piece else [codec.vocabulary.index(f"<0x{byte:02X}>") for byte in letter.encode()]
    pieces = stream(codec, ids)

    assert "".join(pieces) == codec.decode(ids)
    assert not any("\ufffd" in piece for piece in pieces)


@given(data=st.data())
def test_broken_fallback_bytes_never_stop_the_stream(data):
    """A run of fallback bytes breaks as a whole, so what was shown may stay; what follows must still come."""
    codec = CODECS["byte_fallback"]
    broken = data.draw(st.lists(st.integers(len(PIECES) + 1, codec.last_id - 1), max_size=40))

    assert "".join(stream(codec, [*broken, 5, 4])).endswith("allo")


def test_an_emoji_of_several_tokens_comes_whole():
    codec = CODECS["fused_bytes"]
    emoji = [codec.vocabulary.index(f"<0x{byte:02X}>") for byte in "😀".encode()]

    assert stream(codec, [3, *emoji, 5]) == [" Hello", "", "", "", "😀", "a", ""]


@pytest.mark.parametrize("name", ["byte_level", "fused_bytes"])
@pytest.mark.parametrize("letter", ["é", "漢", "😀"])
def test_a_reply_that_a_limit_cuts_inside_a_character_ends_before_it(name, letter):
    codec = CODECS[name]
    cut = "a漢".encode() + letter.encode()[:-1]
    if name == "byte_level":
        ids = [byte + 1 for byte in cut]
    else:
        ids = [codec.vocabulary.index(f"<0x{byte:02X}>") for byte in cut]

    assert "".join(stream(codec, ids)) == "a漢"


def test_a_token_without_text_and_a_special_one_keep_the_space_after_them():
    codec = CODECS["byte_fallback"]

    assert "".join(stream(codec, [3, 0, codec.last_id, 3])) == "Hello Hello"


def test_the_window_stays_short_however_broken_the_bytes_are():
    codec = CODECS["byte_level"]
    detokenizer = Detokenizer(codec)
    for _ in range(500):
        detokenizer.push(0xFF + 1)

    assert len(detokenizer._ids) < 20
