"""Runs slices one after another in one process, as a ring would. For the tests of this folder."""

from collections.abc import Sequence
from pathlib import Path

import torch
from swarm_stage.model.build_slice import build_slice
from swarm_stage.model.holding import Holding
from swarm_stage.model.slice_model import SliceModel

from tests.models import even_ranges, read_config, split_tensors

TIE_GAP = 1e-3  # a smaller gap between the reference's two best logits is a tie


def build_slices(folder: Path, stage_count: int, dtype: str = "F32", attention: str = "auto") -> list[SliceModel]:
    """The model in `folder`, cut into `stage_count` slices."""
    config = read_config(folder)
    files = split_tensors(folder, folder / "tensors")
    ranges = even_ranges(config["num_hidden_layers"], stage_count)
    return [build_slice(config, layers, files, Holding(dtype, attention=attention), _say_nothing) for layers in ranges]


def run_greedy(
    slices: Sequence[SliceModel], prompt_ids: list[int], new_tokens: int, piece: int | None = None
) -> tuple[list[int], list[torch.Tensor]]:
    """The greedy reply and the logits_V behind each token; the prompt goes in pieces of `piece` tokens."""
    caches = [part.new_cache() for part in slices]
    position, ids, logits = 0, list(prompt_ids), []
    pieces = [ids[start : start + (piece or len(ids))] for start in range(0, len(ids), piece or len(ids))]
    for _ in range(new_tokens):
        for step_ids in pieces:
            hidden_BTD = slices[0].embed(step_ids)
            for part, cache in zip(slices, caches, strict=True):
                hidden_BTD = part.run(hidden_BTD, cache, position)
            position += len(step_ids)
        logits.append(slices[-1].logits(hidden_BTD))
        ids.append(int(logits[-1].argmax()))
        pieces = [ids[-1:]]
    return ids[len(prompt_ids) :], logits


def assert_same_reply(got: list[int], want: list[int], want_logits: Sequence[torch.Tensor]) -> None:
    """Token for token; a first difference is accepted only at a tie of the reference, and printed."""
    for step, (ours, theirs) in enumerate(zip(got, want, strict=True)):
        if ours != theirs:
            gap = float(want_logits[step][theirs] - want_logits[step][ours])
            print(f"tie at token {step}: {theirs} against {ours}, gap {gap:.2e}")
            assert gap < TIE_GAP, f"token {step} is {ours}, transformers says {theirs} (gap {gap:.3g})"
            return


def _say_nothing(done: int, total: int) -> None:
    """Progress nobody watches."""
