"""A model's text side from its files, and nothing run that the files bring along."""

import json

import pytest
from silentswarm.core.v1.generation_pb2 import Chat, ChatMessage
from swarm_core.errors import BadRequest, ServableCorrupt
from swarm_stage.text.codec import load_text_codec
from swarm_stage.text.detokenizer import Detokenizer
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] not in ['system', 'user', 'assistant'] %}"
    "{{ raise_exception('only system, user and assistant may speak') }}{% endif %}"
    "<|im_start|>{{ message['role'] }} {{ message['content'] }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant {% endif %}"
    "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}"
)
CONFIG = {"model_type": "llama", "num_hidden_layers": 2, "vocab_size": 300, "eos_token_id": 258}


@pytest.fixture
def model_dir(tmp_path):
    """config.json, generation_config.json and a byte-level tokenizer without merges."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={symbol: place for place, symbol in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = [AddedToken(text, special=True) for text in ("<|im_start|>", "<|im_end|>", "<|end|>", "</s>")]
    tokenizer.add_special_tokens(special)
    tokenizer.add_tokens(["<think>", "</think>"])
    tokenizer.enable_truncation(4)  # some checkpoints carry one; prompts are never cut
    (tmp_path / "tokenizer").mkdir()
    tokenizer.save(str(tmp_path / "tokenizer" / "tokenizer.json"))
    write(tmp_path, "tokenizer/tokenizer_config.json", TOKENIZER_CONFIG)
    write(tmp_path, "config.json", CONFIG)
    return tmp_path


TOKENIZER_CONFIG = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>", "chat_template": TEMPLATE}


def write(folder, name, document):
    (folder / name).write_text(json.dumps(document))


def chat_ids(codec, *said: tuple[str, str], **asked) -> list[int]:
    """A conversation, as (role, content), as the model reads it."""
    messages = [ChatMessage(role=role, content=content) for role, content in said]
    return codec.chat_prompt(Chat(messages=messages, **asked)).ids


def shown(codec, ids):
    """The text with its special tokens."""
    return codec._tokenizer.decode(ids, skip_special_tokens=False)


def test_a_conversation_goes_through_the_template(model_dir):
    codec = load_text_codec(model_dir)
    ids = chat_ids(codec, ("system", "Be kind."), ("user", "Hi é"))

    assert (
        shown(codec, ids)
        == "<|im_start|>system Be kind.<|im_end|><|im_start|>user Hi é<|im_end|><|im_start|>assistant "
    )


def test_thinking_reaches_the_template_only_when_it_is_given(model_dir):
    codec = load_text_codec(model_dir)
    said = ("user", "Hi")

    assert chat_ids(codec, said) == chat_ids(codec, said, enable_thinking=True)
    assert shown(codec, chat_ids(codec, said, enable_thinking=False)).endswith("<think></think>")


def test_a_refusal_of_the_template_is_told_in_its_own_words(model_dir):
    with pytest.raises(BadRequest, match="only system, user and assistant may speak"):
        chat_ids(load_text_codec(model_dir), ("narrator", "5"))


@pytest.mark.parametrize(
    "template",
    ["{{ ''.__class__.__mro__[1].__subclasses__() }}", "{% for", "{{ messages[9]['content'] + 1 }}", "{{ 1 // 0 }}"],
)
def test_a_template_that_escapes_or_breaks_is_refused(model_dir, template):
    write(model_dir, "tokenizer/tokenizer_config.json", {**TOKENIZER_CONFIG, "chat_template": template})
    with pytest.raises(BadRequest, match="the model's chat template refuses this"):
        chat_ids(load_text_codec(model_dir), ("user", "Hi"))


def test_a_model_without_a_template_takes_plain_prompts_only(model_dir):
    write(model_dir, "tokenizer/tokenizer_config.json", {"eos_token": "</s>"})
    codec = load_text_codec(model_dir)

    assert codec.decode(codec.prompt_ids("a longer prompt, not cut")) == "a longer prompt, not cut"
    with pytest.raises(BadRequest, match="no chat template"):
        chat_ids(codec, ("user", "Hi"))


def test_every_token_that_ends_a_reply_is_known(model_dir):
    """Of the tokenizer, of both configs, and the turn ends its template writes; <|end|> it never does."""
    write(model_dir, "generation_config.json", {"eos_token_id": [270, 271]})
    codec = load_text_codec(model_dir)
    ids = {text: codec._tokenizer.convert_tokens_to_ids(text) for text in ("<|im_end|>", "</s>")}

    assert codec.end_ids == {ids["<|im_end|>"], ids["</s>"], 258, 270, 271}


def test_sampling_defaults_are_those_of_models_that_sample(model_dir):
    assert load_text_codec(model_dir).default_sampling == {}
    write(model_dir, "generation_config.json", {"do_sample": False, "temperature": 0.1})
    assert load_text_codec(model_dir).default_sampling == {}
    write(model_dir, "generation_config.json", {"do_sample": True, "temperature": 0.6, "top_k": 20, "top_p": None})
    assert load_text_codec(model_dir).default_sampling == {"temperature": 0.6, "top_k": 20}


def test_text_streams_through_the_codec_without_special_tokens(model_dir):
    codec = load_text_codec(model_dir)
    ids = chat_ids(codec, ("user", "你好 👩‍👧"))
    detokenizer = Detokenizer(codec)

    assert "".join(map(detokenizer.push, ids)) + detokenizer.finish() == "user 你好 👩‍👧assistant "
    assert codec.decode(codec.prompt_ids("<think> stays")) == "<think> stays"


def test_a_model_without_a_tokenizer_has_no_codec(tmp_path):
    write(tmp_path, "config.json", CONFIG)
    assert load_text_codec(tmp_path) is None


def test_a_tokenizer_with_code_of_its_own_is_refused(model_dir):
    hostile = {**TOKENIZER_CONFIG, "auto_map": {"AutoTokenizer": ["evil.Evil", None]}}
    write(model_dir, "tokenizer/tokenizer_config.json", hostile)
    with pytest.raises(ServableCorrupt, match="code of its own"):
        load_text_codec(model_dir)


@pytest.mark.parametrize("name", ["tokenizer/tokenizer.json", "generation_config.json", "config.json"])
def test_a_damaged_file_is_corrupt(model_dir, name):
    (model_dir / name).write_text('{"model": ')
    with pytest.raises(ServableCorrupt):
        load_text_codec(model_dir)


@pytest.mark.parametrize(("name", "value"), [("top_p", 0.0), ("temperature", -1.0), ("temperature", float("nan"))])
def test_sampling_defaults_that_cannot_be_used_fail_the_load_not_every_request(model_dir, name, value):
    write(model_dir, "generation_config.json", {"do_sample": True, name: value})

    with pytest.raises(ServableCorrupt, match=name):
        load_text_codec(model_dir)


def test_a_top_k_of_minus_one_means_all(model_dir):
    write(model_dir, "generation_config.json", {"do_sample": True, "top_k": -1})

    assert load_text_codec(model_dir).default_sampling == {"top_k": 0}


def test_a_tokenizer_of_absurd_size_is_not_read(model_dir):
    with (model_dir / "tokenizer" / "vocab.json").open("wb") as bomb:
        bomb.truncate(2**30)  # a hole: takes no room on the disk
    with pytest.raises(ServableCorrupt, match=r"vocab\.json has 1,073,741,824 bytes"):
        load_text_codec(model_dir)
