"""KV budget arithmetic."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from swarm_core.errors import ContextTooLong
from swarm_stage.engine.budget import WORKING_BYTES, DeviceRoom, KvBudget, measured_kv_tokens, stage_kv_tokens


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


def test_the_smallest_device_sets_the_budget_of_the_stage():
    """Layers were spread by free memory; an embedding or a head on one card leaves it less for keys and values."""
    roomy = DeviceRoom("cuda:0", free_bytes=6 * 2**30, kv_bytes_per_token=2**16)
    tight = DeviceRoom("cuda:1", free_bytes=2 * 2**30, kv_bytes_per_token=2**17)

    assert stage_kv_tokens([roomy, tight]) == (measured_kv_tokens(2 * 2**30, 2**17), tight)
    assert stage_kv_tokens([roomy]) == (measured_kv_tokens(6 * 2**30, 2**16), roomy)


def test_a_device_with_more_free_but_more_layers_can_be_the_smallest():
    many = DeviceRoom("cuda:0", free_bytes=8 * 2**30, kv_bytes_per_token=30 * 2**12)
    few = DeviceRoom("cuda:1", free_bytes=4 * 2**30, kv_bytes_per_token=10 * 2**12)

    assert stage_kv_tokens([many, few])[1] is many


def test_room_for_a_weight_in_float32_replaces_that_for_passing_buffers():
    """A stage runs one forward at a time: both are never needed at once."""
    plain = DeviceRoom("cuda:0", 4 * 2**30, 2**16)
    wide = DeviceRoom("cuda:0", 4 * 2**30, 2**16, working_bytes=356 * 2**20)

    assert stage_kv_tokens([plain])[0] - stage_kv_tokens([wide])[0] == 56 * 2**20 / 2**16


@given(
    st.lists(st.tuples(st.integers(0, 2**36), st.integers(1, 2**18)), min_size=1, max_size=8),
    st.integers(0, 2**16),
    st.integers(1, 2**17),
)
def test_what_a_stage_admits_fits_on_every_device_and_one_more_does_not(devices, score_bytes, context_tokens):
    rooms = [DeviceRoom(f"cuda:{index}", *device) for index, device in enumerate(devices)]
    tokens, smallest = stage_kv_tokens(rooms, score_bytes, context_tokens)
    held = [measured_kv_tokens(*device, score_bytes, context_tokens) for device in devices]

    assert tokens == min(held)
    assert held[rooms.index(smallest)] == tokens


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
