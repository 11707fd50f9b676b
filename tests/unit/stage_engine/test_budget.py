"""KV budget arithmetic."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from swarm_core.errors import ContextTooLong
from swarm_stage.engine.budget import WORKING_BYTES, KvBudget, measured_kv_tokens


def test_what_fits_is_85_percent_of_free_less_the_working_buffers():
    assert measured_kv_tokens(free_bytes=10 * 2**30, kv_bytes_per_token=2**20) == int(10 * 1024 * 0.85) - 300


def test_too_little_memory_is_zero_positions_not_a_negative_number():
    assert measured_kv_tokens(free_bytes=WORKING_BYTES, kv_bytes_per_token=1000) == 0


@given(st.integers(0, 2**36), st.integers(1, 2**18), st.integers(0, 2**16), st.integers(1, 2**17))
def test_keys_values_and_the_scores_of_a_piece_fit_together(free_bytes, kv_bytes, score_bytes, context_tokens):
    """A measured budget that left the scores out ran a card out of memory in a 4,000-token prompt."""
    tokens = measured_kv_tokens(free_bytes, kv_bytes, score_bytes, context_tokens)
    room_bytes = max(0, int(free_bytes * 0.85) - WORKING_BYTES)

    def taken_bytes(tokens: int) -> int:
        return tokens * kv_bytes + min(tokens, context_tokens) * score_bytes

    assert taken_bytes(tokens) <= room_bytes < taken_bytes(tokens + 1) + score_bytes + kv_bytes


@given(st.lists(st.integers(1, 100), max_size=30))
def test_reservations_never_exceed_the_budget_and_come_back(needs):
    budget = KvBudget(tokens=250, context_tokens=250)
    for session, needed in enumerate(needs):
        if budget.fits(needed):
            budget.reserve(session, needed)
        assert budget.reserved_tokens <= 250
    for session in range(len(needs)):
        budget.release(session)

    assert budget.reserved_tokens == 0


def test_the_refusal_names_both_numbers():
    with pytest.raises(ContextTooLong, match=r"needs 312 tokens.*holds 256") as refusal:
        KvBudget(tokens=4096, context_tokens=256).check(prompt_tokens=300, new_tokens_max=12)
    assert refusal.value.facts == {"needed_tokens": "312", "budget_tokens": "256", "prompt_tokens": "300"}
