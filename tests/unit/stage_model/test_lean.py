"""Lean slices: batches of sessions at different lengths, buffers that grow, and who gets one."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from swarm_stage.model.lean.cache import LeanCache
from swarm_stage.model.lean.slice import LeanSlice

from tests.models import VOCABULARY, make_tiny_model
from tests.unit.stage_model.slices import build_slices, run_greedy

LEAN = ("llama", "mistral", "qwen2", "qwen3")


def prompt_of(length: int, seed: int = 0) -> list[int]:
    return torch.randint(
        3, VOCABULARY, (length,), generator=torch.Generator().manual_seed(seed * 999 + length)
    ).tolist()


@pytest.mark.parametrize("family", LEAN)
def test_sessions_of_any_length_step_together_and_get_what_they_get_alone(family, tmp_path):
    slices = build_slices(make_tiny_model(family, tmp_path), 2)
    prompts = [prompt_of(length, seed) for seed, length in enumerate((1, 5, 40, 130))]
    alone = [run_greedy(slices, prompt, 12) for prompt in prompts]
    caches = [[part.new_cache() for part in slices] for _ in prompts]
    tokens = []
    for prompt, held in zip(prompts, caches, strict=True):
        hidden_BTD = slices[0].embed(prompt)
        for part, cache in zip(slices, held, strict=True):
            hidden_BTD = part.run(hidden_BTD, cache, 0)
        tokens.append([int(slices[-1].logits(hidden_BTD).argmax())])
    for step in range(11):
        hidden_B1D = slices[0].embed([reply[-1] for reply in tokens]).transpose(0, 1)
        positions = [len(prompt) + step for prompt in prompts]
        for stage, part in enumerate(slices):
            hidden_B1D = part.run_batch(hidden_B1D, [held[stage] for held in caches], positions)
        logits_BV = slices[-1].logits_batch(hidden_B1D)
        for reply, logits_V, (_, lone_logits) in zip(tokens, logits_BV, alone, strict=True):
            assert torch.allclose(logits_V, lone_logits[step + 1], rtol=0, atol=2e-4)
            reply.append(int(logits_V.argmax()))

    assert tokens == [ids for ids, _ in alone]


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_attention_left_to_torch_gives_the_same_tokens(family, tmp_path):
    folder = make_tiny_model(family, tmp_path)
    grouped, plain = build_slices(folder, 1), build_slices(folder, 1, attention="sdpa")
    tokens, logits = run_greedy(grouped, prompt_of(40), 12)
    plain_tokens, plain_logits = run_greedy(plain, prompt_of(40), 12)

    assert plain_tokens == tokens
    assert torch.allclose(torch.stack(plain_logits), torch.stack(logits), rtol=0, atol=2e-4)


def test_who_is_lean_and_who_runs_as_transformers_has_it(tmp_path):
    def made(family, **options) -> type:
        return type(build_slices(make_tiny_model(family, tmp_path / f"{family}{len(options)}", **options), 1)[0])

    assert all(made(family) is LeanSlice for family in LEAN)
    assert made("mistral", sliding_window=16) is not LeanSlice
    assert made("gemma2") is not LeanSlice


def test_half_precision_runs_as_transformers_has_it(tmp_path):
    assert not isinstance(build_slices(make_tiny_model("llama", tmp_path), 1, "BF16")[0], LeanSlice)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 200), st.integers(0, 300)), min_size=1, max_size=12))
def test_what_is_held_survives_every_growth_and_crop(steps):
    cache = LeanCache(2, 1, 4, torch.float32, torch.device("cpu"))
    held: list[float] = []
    for added, cropped_to in steps:
        cache.crop(cropped_to)
        del held[cropped_to:]
        start = len(held)
        held.extend(float(start + index + added) for index in range(added))
        cache.reserve(len(held))
        cache.k[:, :, start : len(held)] = torch.tensor(held[start:])[:, None]
        cache.length = len(held)

    assert cache.k[1, 0, : cache.length, 0].tolist() == held
    assert cache.length == len(held)


def test_what_was_reserved_is_never_moved():
    cache = LeanCache(1, 1, 2, torch.float32, torch.device("cpu"), reserved_tokens=2000)
    place = cache.k.data_ptr()
    for length in range(1, 2001):
        cache.reserve(length)
        cache.length = length

    assert cache.k.data_ptr() == place
    assert cache.k.shape[2] == 2000


def test_a_long_reply_copies_its_past_a_few_times_not_every_step():
    cache = LeanCache(1, 1, 2, torch.float32, torch.device("cpu"))
    buffers = set()
    for length in range(1, 2001):
        cache.reserve(length)
        cache.length = length
        buffers.add(cache.k.data_ptr())

    assert len(buffers) <= 12
