"""Slices with adapters, run one after another in one process, as a ring would. For the tests of this folder."""

from collections.abc import Sequence
from pathlib import Path

import torch
from swarm_stage.model.build_slice import build_slice
from swarm_stage.model.holding import AdapterSource, Holding
from swarm_stage.model.slice_model import SliceModel

from tests.models import even_ranges, read_config, split_tensors

LORAS = ("lean", "lean16", "peft")


def build(
    folder: Path, sources: Sequence[AdapterSource], stages: int = 1, lora: str = "lean", **holding: str
) -> list[SliceModel]:
    """The model in `folder` with adapters, cut into slices. holding: fields of Holding."""
    config, files = read_config(folder), split_tensors(folder, folder / "tensors")
    held = Holding(**{"dtype": "F32", "lora": lora, **holding})
    return [
        build_slice(config, layers, files, held, lambda done, total: None, sources)
        for layers in even_ranges(config["num_hidden_layers"], stages)
    ]


def reply(
    slices: Sequence[SliceModel], prompt: Sequence[int], new_tokens: int, adapter: str = "", piece: int = 4
) -> tuple[list[int], list[torch.Tensor]]:
    """A greedy reply, alone, and the logits_V behind each token; the prompt goes in pieces of `piece` tokens."""
    caches = [part.new_cache(0, part.adapter_place(adapter)) for part in slices]
    ids, logits, pieces = [], [], [prompt[start : start + piece] for start in range(0, len(prompt), piece)]
    for _ in range(new_tokens):
        for step_ids in pieces:
            hidden = slices[0].embed(step_ids)
            for part, cache in zip(slices, caches, strict=True):
                hidden = part.run(hidden, cache, cache.length)
        logits.append(slices[-1].logits(hidden))
        ids.append(int(logits[-1].argmax()))
        pieces = [ids[-1:]]
    return ids, logits


def batched_replies(
    slices: Sequence[SliceModel], prompt: Sequence[int], new_tokens: int, adapters: Sequence[str]
) -> list[list[int]]:
    """Greedy replies to one prompt, a session for each adapter, all stepping together."""
    caches = [[part.new_cache(0, part.adapter_place(adapter)) for part in slices] for adapter in adapters]
    replies: list[list[int]] = []
    for row in caches:
        hidden = slices[0].embed(prompt)
        for part, cache in zip(slices, row, strict=True):
            hidden = part.run(hidden, cache, 0)
        replies.append([int(slices[-1].logits(hidden).argmax())])
    for step in range(new_tokens - 1):
        hidden = slices[0].embed([ids[-1] for ids in replies]).transpose(0, 1)
        for place, part in enumerate(slices):
            hidden = part.run_batch(hidden, [row[place] for row in caches], [len(prompt) + step] * len(replies))
        for ids, logits_V in zip(replies, slices[-1].logits_batch(hidden), strict=True):
            ids.append(int(logits_V.argmax()))
    return replies
