"""A fellow's pure decisions: capabilities, capacity, idling, backoff."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from swarm_core.errors import BadRequest
from swarm_fellow.domain.backoff import REDIAL_MAX_S, REDIAL_MIN_S, failures_after, heartbeat_delay_s, redial_delay_s
from swarm_fellow.domain.capabilities import Offer, declare_capabilities
from swarm_fellow.domain.capacity import Occupant, choose_evicted
from swarm_fellow.domain.idle import is_reapable, reap_interval_s
from swarm_fellow.rpc.convert import capabilities_to_proto, known_capabilities
from swarm_wire.codecs import CODECS

OFFER = Offer(
    loaded_models_max=2,
    in_flight_max=8,
    listens=True,
    frame_bytes_max=2**26,
    model_types=("llama",),
    prefill_chunk_tokens=128,
)
DRAWS = st.floats(min_value=0, max_value=1, exclude_max=True)


def test_a_declared_capability_is_present_even_without_parameters():
    declared = capabilities_to_proto(declare_capabilities(OFFER, (), known_capabilities()))

    assert declared.HasField("ping") and declared.HasField("serve_rewire") and declared.HasField("direct_link")
    assert (declared.wire.version_min, declared.wire.version_max, declared.wire.frame_bytes_max) == (1, 1, 2**26)
    assert declared.serve.loaded_models_max == 2 and list(declared.serve.model_types) == ["llama"]
    assert declared.serve_n_stage.stage_count_max == 16 and declared.serve_concurrent.in_flight_max == 8


def test_every_codec_that_stages_speak_is_declared():
    declared = capabilities_to_proto(declare_capabilities(OFFER, (), known_capabilities()))

    assert list(declared.serve_codec.codecs) == list(CODECS)


def test_splitting_of_rows_is_declared_where_there_are_4_bit_weights_to_split():
    def declared(**changes: object) -> bool:
        return "serve_4bit_rows" in declare_capabilities(replace(OFFER, **changes), (), known_capabilities())

    assert declared(quantizations=("nf4", "int8"), splits_rows=True)
    assert not declared(quantizations=("nf4", "int8"), splits_rows=False)
    assert not declared(quantizations=(), splits_rows=True)


@pytest.mark.parametrize(("cards", "is_declared"), [(0, False), (1, False), (2, True)])
def test_spreading_is_declared_with_several_cards(cards: int, is_declared: bool):
    """One that SWARM_STAGE_DEVICE pins is the only one there is; a processor beside it is slower than none."""
    declared = declare_capabilities(replace(OFFER, card_count=cards), (), known_capabilities())

    assert ("serve_devices" in declared) is is_declared


def test_the_types_that_weights_are_held_in_under_float32_are_declared():
    declared = capabilities_to_proto(declare_capabilities(OFFER, (), known_capabilities()))

    assert list(declared.serve_storage.dtypes) == ["F16", "BF16"]


@pytest.mark.parametrize(("chunk_tokens", "declared_tokens"), [(128, 128), (0, 2**32 - 1)])
def test_the_prompt_piece_is_declared_and_a_whole_prompt_is_not_taken_for_unsaid(chunk_tokens, declared_tokens):
    offer = replace(OFFER, prefill_chunk_tokens=chunk_tokens)
    declared = capabilities_to_proto(declare_capabilities(offer, (), known_capabilities()))

    assert declared.serve.prefill_chunk_tokens == declared_tokens


def test_what_this_build_cannot_do_is_not_declared():
    declared = declare_capabilities(OFFER, (), known_capabilities())

    assert not {"train", "serve_speculative", "resume"} & set(declared)


@given(st.sets(st.sampled_from(known_capabilities())))
def test_a_withheld_capability_is_absent_and_the_others_stay(withheld: set[str]):
    everything = set(declare_capabilities(OFFER, (), known_capabilities()))

    assert set(declare_capabilities(OFFER, withheld, known_capabilities())) == everything - withheld


def test_withholding_a_capability_that_does_not_exist_names_those_that_do():
    with pytest.raises(BadRequest, match=r"direct_links.*direct_link"):
        declare_capabilities(OFFER, {"direct_links"}, known_capabilities())


@given(st.lists(st.integers(), unique=True, max_size=8), st.integers(min_value=1, max_value=9))
def test_the_oldest_make_room_and_no_more_than_needed(orders: list[int], models_max: int):
    occupants = [Occupant(f"p{order}", order) for order in orders]
    evicted = choose_evicted(occupants, models_max)

    kept = sorted(orders)[len(evicted) :]
    assert evicted == [f"p{order}" for order in sorted(orders)[: len(evicted)]]
    assert len(kept) + 1 <= models_max or not kept
    assert not evicted or len(kept) + 1 == models_max


@pytest.mark.parametrize(
    ("idle_s", "sessions", "replies_open", "idle_unload_s", "reaped"),
    [
        (900, 0, 0, 900, True),
        (899.9, 0, 0, 900, False),
        (5000, 1, 0, 900, False),
        (5000, 0, 1, 900, False),
        (5000, 0, 0, 0, False),
    ],
)
def test_only_a_stage_without_any_generation_is_reaped(idle_s, sessions, replies_open, idle_unload_s, reaped):
    assert is_reapable(idle_s, sessions, replies_open, idle_unload_s) is reaped


def test_the_reaper_looks_often_enough_for_short_limits_and_not_too_often_for_long_ones():
    assert (reap_interval_s(900), reap_interval_s(4), reap_interval_s(0.001)) == (5, 1, 0.05)


@given(st.integers(min_value=1, max_value=10_000), DRAWS)
def test_a_redial_waits_between_a_quarter_second_and_five(failures: int, draw: float):
    assert REDIAL_MIN_S <= redial_delay_s(failures, draw) <= REDIAL_MAX_S


def test_redials_spread_over_a_range_that_doubles():
    widest = [redial_delay_s(failures, 1.0) for failures in range(1, 9)]

    assert widest == [0.5, 1, 2, 4, 5, 5, 5, 5]
    assert redial_delay_s(1, 0.0) == redial_delay_s(8, 0.0) == 0.25


def test_a_link_that_held_starts_the_count_again():
    assert failures_after(7, lasted_s=60) == 1
    assert failures_after(7, lasted_s=0.1) == 8


@given(st.integers(min_value=1, max_value=60_000), DRAWS)
def test_a_heartbeat_comes_within_ten_per_cent_of_its_interval(heartbeat_ms: int, draw: float):
    assert abs(1000 * heartbeat_delay_s(heartbeat_ms, draw) - heartbeat_ms) <= 0.1 * heartbeat_ms + 1e-6
