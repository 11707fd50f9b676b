"""A tiny model whose text tells its tokens, and whether a reply is what that model says alone. For many sessions."""

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models

from tests.models import VOCABULARY, load_reference, make_tiny_model

WORDS = 1200  # more than the model's vocabulary: a sleeping stage draws ids up to 1,099
CANARY_TOKENS = 4
TIE = 2e-3  # gap of two logits below which another rounding may choose the other one
ROWS = 16  # replies of one forward


def text_of(ids: Sequence[int]) -> str:
    """As the tokenizer of `make_spelled_llama` writes ids: every token can be told from the text."""
    return "".join(f"<{token}>" for token in ids)


def make_spelled_llama(folder: Path) -> Path:
    """A random llama of 4 layers and 32 KiB of KV a position, with a tokenizer, so that stop texts work.

    So much KV for so little compute: a leaked session shows in a process's memory.
    """
    make_tiny_model("llama", folder, layers=4, num_key_value_heads=4, head_dim=256, hidden_size=64)
    tokenizer = Tokenizer(models.WordLevel({f"<{word}>": word for word in range(WORDS)}, unk_token="<0>"))
    tokenizer.decoder = decoders.Fuse()
    (folder / "tokenizer").mkdir()
    tokenizer.save(str(folder / "tokenizer" / "tokenizer.json"))
    described = {"tokenizer_class": "PreTrainedTokenizerFast"}
    (folder / "tokenizer" / "tokenizer_config.json").write_text(json.dumps(described))
    return folder


def make_prompts(count: int, numbers: random.Random, longest: int) -> list[tuple[int, ...]]:
    """Prompts of random length up to `longest` tokens; each ends in a canary, four tokens no other prompt holds."""
    half = VOCABULARY // 2
    prompts = []
    for canary in numbers.sample(range(half, VOCABULARY), count):
        filler = [numbers.randrange(5, half) for _ in range(numbers.randrange(1, longest - CANARY_TOKENS))]
        prompts.append((*filler, *[canary] * CANARY_TOKENS))
    return prompts


class LoneModel:
    """The whole model of transformers in this process, asked one forward a reply: is each token the best one there?

    A greedy reply is the lone run's exactly when each of its tokens is the best behind the prompt and those before it.
    """

    def __init__(self, folder: Path) -> None:
        self._model: Any = load_reference(folder)

    @torch.inference_mode()
    def first_wrong(self, prompts: Sequence[Sequence[int]], replies: Sequence[Sequence[int]]) -> list[int | None]:
        """For each reply the first token a lone run would not have said; None where all are right."""
        wrong: list[int | None] = []
        for start in range(0, len(prompts), ROWS):
            wrong += self._first_wrong(prompts[start : start + ROWS], replies[start : start + ROWS])
        return wrong

    def _first_wrong(self, prompts: Sequence[Sequence[int]], replies: Sequence[Sequence[int]]) -> list[int | None]:
        whole = [[*prompt, *reply] for prompt, reply in zip(prompts, replies, strict=True)]
        longest = max(map(len, whole))
        # Attention looks back only, so what fills up a row changes nothing before it.
        ids_BT = torch.tensor([[*row, *[0] * (longest - len(row))] for row in whole])
        logits_BTV = self._model(ids_BT, use_cache=False).logits
        wrong = []
        for logits_TV, prompt, reply in zip(logits_BTV, prompts, replies, strict=True):
            behind_NV = logits_TV[len(prompt) - 1 : len(prompt) - 1 + len(reply)]
            said_N = behind_NV[range(len(reply)), list(reply)]
            is_wrong_N = behind_NV.max(dim=-1).values - said_N > TIE
            wrong.append(int(is_wrong_N.nonzero()[0]) if bool(is_wrong_N.any()) else None)
        return wrong
