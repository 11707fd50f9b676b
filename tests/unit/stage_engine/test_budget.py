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
