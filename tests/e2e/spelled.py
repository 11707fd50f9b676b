"""A tiny model as a hub would hold it, whose text tells its tokens: "<5><17>" is two, in and out. For tests only."""

import json
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

from tests.models import VOCABULARY, make_tiny_model

TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
TIE = 1e-3  # gap of two logits below which another rounding may choose the other one
REPLY_S = 60.0
_TOKEN = re.compile(r"<(\d+)>")


def make_spelled_model(folder: Path, **config: Any) -> Path:
    """A random llama of 4 layers with a tokenizer and a chat template, in Hugging Face's layout."""
    make_tiny_model("llama", folder, layers=4, **config)
    tokenizer = Tokenizer(models.WordLevel({f"<{token}>": token for token in range(VOCABULARY)}, unk_token="<0>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"<\d+>"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.save(str(folder / "tokenizer.json"))
    described = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(described))
    return folder


def spell(ids: Sequence[int]) -> str:
    """Tokens as the model's tokenizer writes them."""
    return "".join(f"<{token}>" for token in ids)


def chat(http: str, model_id: str, prompt_ids: Sequence[int], new_tokens: int) -> list[int]:
    """The tokens of a greedy reply to one message, through the gateway."""
    body = {
        "model": model_id,
        "messages": [{"role": "user", "content": spell(prompt_ids)}],
        "temperature": 0,
        "max_tokens": new_tokens,
        "ignore_eos": True,
    }
    document = post(f"{http}/v1/chat/completions", body)
    assert document["model"] == model_id
    assert document["usage"]["prompt_tokens"] == len(prompt_ids)
    return [int(token) for token in _TOKEN.findall(document["choices"][0]["message"]["content"])]


def chat_together(http: str, asked: Sequence[tuple[str, Sequence[int]]], new_tokens: int) -> list[list[int]]:
    """The replies to (model, prompt), all asked for at once."""
    with ThreadPoolExecutor(len(asked)) as pool:
        return list(pool.map(lambda one: chat(http, *one, new_tokens), asked))


def post(url: str, body: object) -> Any:
    """POST JSON, read JSON."""
    request = Request(url, data=json.dumps(body).encode(), headers={"Content-Type": "application/json"})
    with urlopen(request, timeout=REPLY_S) as answer:
        return json.load(answer)


def assert_same_or_tied(tokens: Sequence[int], expected: Sequence[int], logits: Sequence[Any]) -> None:
    """Equal, or first different where the lone run itself was a tie (which is printed)."""
    assert len(tokens) == len(expected)
    first = next((at for at, pair in enumerate(zip(tokens, expected, strict=True)) if pair[0] != pair[1]), None)
    if first is None:
        return
    best, second = logits[first].topk(2).values.tolist()
    print(f"tie at token {first}: gap {best - second:.2e}")
    assert best - second < TIE, f"token {first}: {tokens[first]} for {expected[first]}, gap {best - second:.3e}"
