"""Replies over weights in few bits: transformers' own, token for token, cut anywhere, in pieces and in company."""

import pytest
import torch
from swarm_core.quantization import INT4_FAST, INT8, NF4, QUANTIZED
from swarm_stage.model.lean.slice import LeanSlice
from swarm_stage.model.slice_model import SliceModel

from tests.models import VOCABULARY, make_tiny_model, reference_run
from tests.unit.stage_model.quantised import build_quantised, load_quantised_reference, reference_by_token
from tests.unit.stage_model.slices import assert_same_reply, run_greedy

WIDE = {"hidden_size": 64, "intermediate_size": 128}
PROMPT_LENGTHS = (1, 17, 40)
NEW_TOKENS = 10
ROUNDING = 2e-4  # of logits around 10, where weights alone are quantised
# Where what is multiplied is rounded to codes as well, a difference in the last place can move one to the next code.
ONE_CODE = 0.5


@pytest.fixture(autouse=True)
def one_thread():
    """Tiny matrices are slower on more."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def prompt_of(length: int) -> list[int]:
    """Fixed pseudo-random token ids."""
    return torch.randint(3, VOCABULARY, (length,), generator=torch.Generator().manual_seed(length)).tolist()


def largest_difference(ours: list[torch.Tensor], theirs: list[torch.Tensor]) -> float:
    return max(float((one - other).abs().max()) for one, other in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("family", ["llama", "qwen2", "gemma2", "phi3"])
def test_a_split_model_in_nf4_says_what_transformers_says(family, tmp_path):
    folder = make_tiny_model(family, tmp_path)
    reference = load_quantised_reference(folder, NF4)
    splits = [build_quantised(folder, NF4, count) for count in (1, 2, 3)]
    for length in PROMPT_LENGTHS:
        want, want_logits = reference_run(reference, prompt_of(length), NEW_TOKENS)
        replies = [run_greedy(slices, prompt_of(length), NEW_TOKENS) for slices in splits]

        assert_same_reply(replies[0][0], want, want_logits)
        assert largest_difference(replies[0][1], want_logits) < ROUNDING
        assert all(ids == replies[0][0] for ids, _ in replies)
        assert all(largest_difference(logits, replies[0][1]) == 0 for _, logits in replies)


@pytest.mark.parametrize("family", ["llama", "gemma2", "phi3"])
def test_a_split_model_in_int8_says_what_transformers_says_of_each_position(family, tmp_path):
    folder = make_tiny_model(family, tmp_path)
    reference = load_quantised_reference(folder, INT8)
    splits = [build_quantised(folder, INT8, count) for count in (1, 2, 3)]
    for length in PROMPT_LENGTHS[:2]:
        want, want_logits = reference_by_token(reference, prompt_of(length), NEW_TOKENS)
        replies = [run_greedy(slices, prompt_of(length), NEW_TOKENS) for slices in splits]

        assert replies[0][0] == want
        assert largest_difference(replies[0][1], want_logits) < ONE_CODE
        assert all(ids == replies[0][0] for ids, _ in replies)
        assert all(largest_difference(logits, replies[0][1]) == 0 for _, logits in replies)


@pytest.mark.parametrize("method", QUANTIZED)
@pytest.mark.parametrize("family", ["llama", "phi3"])
def test_a_prompt_in_pieces_gives_the_same_reply(family, method, tmp_path):
    """bitsandbytes' own int8 would not: outliers of one position change all that are computed with it."""
    slices = build_quantised(make_tiny_model(family, tmp_path, **WIDE), method, 2)
    whole, logits = run_greedy(slices, prompt_of(40), NEW_TOKENS)
    pieces, pieces_logits = run_greedy(slices, prompt_of(40), NEW_TOKENS, piece=7)

    assert pieces == whole
    assert largest_difference(pieces_logits, logits) < (ROUNDING if method == NF4 else ONE_CODE)


@pytest.mark.parametrize("method", QUANTIZED)
@pytest.mark.parametrize("family", ["llama", "qwen2", "gemma2"])
def test_sessions_in_one_batch_get_the_replies_they_get_alone(family, method, tmp_path):
    (part,) = build_quantised(make_tiny_model(family, tmp_path, **WIDE), method, 1)
    prompts = [prompt_of(length) for length in (3, 9, 14, 25)]
    alone = [run_greedy([part], prompt, NEW_TOKENS) for prompt in prompts]

    together = run_together(part, prompts, NEW_TOKENS)
    for (ids, logits), (got, got_logits) in zip(alone, together, strict=True):
        assert got == ids
        assert largest_difference(got_logits, logits) < ROUNDING


def run_together(
    part: SliceModel, prompts: list[list[int]], new_tokens: int
) -> list[tuple[list[int], list[torch.Tensor]]]:
    """Greedy replies and their logits, every decode step one batch of all sessions."""
    caches = [part.new_cache() for _ in prompts]
    hidden = [part.run(part.embed(prompt), cache, 0)[:, -1:] for prompt, cache in zip(prompts, caches, strict=True)]
    steps = [part.logits_batch(torch.cat(hidden))]
    for step in range(new_tokens - 1):
        positions = [len(prompt) + step for prompt in prompts]
        rows_B1D = part.embed(steps[-1].argmax(-1).tolist()).transpose(0, 1)
        steps.append(part.logits_batch(part.run_batch(rows_B1D, caches, positions)))
    return [([int(step[row].argmax()) for step in steps], [step[row] for step in steps]) for row in range(len(prompts))]


def test_int4_fast_runs_where_its_kernels_do(tmp_path):
    """Here on the processor, in torch's own kernels."""
    folder = make_tiny_model("llama", tmp_path, **WIDE)
    slices = build_quantised(folder, INT4_FAST, 2)
    whole = build_quantised(folder, INT4_FAST, 1)

    assert [part.quantization for part in slices] == [INT4_FAST, INT4_FAST]
    assert all(isinstance(part, LeanSlice) and not part.notes for part in slices)
    assert run_greedy(slices, prompt_of(17), NEW_TOKENS)[0] == run_greedy(whole, prompt_of(17), NEW_TOKENS)[0]
