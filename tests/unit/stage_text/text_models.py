"""Small tokenizers of the kinds that models have, and model folders with chat templates. For tests only."""

import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

SPECIAL = ("<s>", "</s>", "<|im_start|>", "<|im_end|>", "[TOOL_CALLS]", "<|python_tag|>")
WORDS = ("<think>", "</think>", "<tool_call>", "</tool_call>")
CORPUS = [
    "Hello world, what is the weather in Paris today?",
    "I am a system of many machines.",
    "name arguments city",
] * 4

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# As Qwen3: tools in the first turn, calls with marks, answers inside the user's turns, reasoning that can be off.
QWEN = (
    "{% if tools %}<|im_start|>system\n{% if messages[0].role == 'system' %}{{ messages[0].content }}\n{% endif %}"
    "<tools>{% for tool in tools %}\n{{ tool | tojson }}{% endfor %}\n</tools>"
    '<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call><|im_end|>\n{% endif %}'
    "{% for message in messages %}{% if message.role == 'tool' %}<|im_start|>user\n<tool_response>\n"
    "{{ message.content }}\n</tool_response><|im_end|>\n"
    "{% elif not (loop.first and message.role == 'system' and tools) %}{% set content = message.content %}"
    "{% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}"
    "<|im_start|>{{ message.role }}\n"
    "{% if message.reasoning_content %}<think>{{ message.reasoning_content }}</think>{% endif %}"
    '{{ content }}{% for call in message.tool_calls or [] %}\n<tool_call>\n{"name": "{{ call.function.name }}", '
    '"arguments": {{ call.function.arguments | tojson }}}\n</tool_call>{% endfor %}'
    "<|im_end|>\n{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
R1 = CHATML.replace("assistant\n{% endif %}", "assistant\n<think>\n{% endif %}")


def byte_level() -> Tokenizer:
    """As GPT-2, Llama 3, Qwen and SmolLM."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=340, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    return _with_added(tokenizer)


def byte_fallback() -> Tokenizer:
    """As Llama 2, Mistral, Phi-3: a text begins with a space that its decoder drops; what is no piece is bytes."""
    seen = Tokenizer(models.BPE())
    seen.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    seen.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=200, show_progress=False))
    described = json.loads(seen.to_str())["model"]
    pieces = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), *described["vocab"]]
    merges = [tuple(merge) for merge in described["merges"]]
    vocabulary = {piece: place for place, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    tokenizer.normalizer = seen.normalizer
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(steps)
    return _with_added(tokenizer)


def metaspace() -> Tokenizer:
    """As vocabularies of whole pieces, with a piece for each letter they know."""
    letters = sorted(
        set("".join(CORPUS)) | set('<|>_[]/{}":,\n▁TOOLCALS') | set("abcdefghijklmnopqrstuvwxyz0123456789")
    )
    pieces = [("<unk>", 0.0), *((letter, -9.0) for letter in letters), ("▁the", -3.0), ("llo", -3.0), ("</s>", 0.0)]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=0, byte_fallback=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="first")
    return _with_added(tokenizer)


KINDS = {build.__name__: build for build in (byte_level, byte_fallback, metaspace)}


def write_model(folder: Path, kind: str = "byte_level", template: str = CHATML, **settings: object) -> Path:
    """A folder that load_text_codec takes. settings: more of tokenizer_config.json."""
    (folder / "tokenizer").mkdir(parents=True, exist_ok=True)
    KINDS[kind]().save(str(folder / "tokenizer" / "tokenizer.json"))
    described = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "chat_template": template,
    }
    (folder / "tokenizer" / "tokenizer_config.json").write_text(json.dumps(described | settings))
    config = {"model_type": "llama", "num_hidden_layers": 2, "vocab_size": 600}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def _with_added(tokenizer: Tokenizer) -> Tokenizer:
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in SPECIAL])
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in WORDS])
    return tokenizer
