"""Penalties, biases, holds, log-probabilities: the published formulas, and tokens whatever the floats."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from swarm_core.errors import BadRequest, StageFailed
from swarm_stage.engine.sampling import BIASES_MAX, Sampling
from swarm_stage.model.drawer import Drawer
from swarm_stage.model.sampling import LOGPROB_MIN, draw, log_probabilities, permit, shape_logits
from transformers.generation.logits_process import RepetitionPenaltyLogitsProcessor

LOGITS = np.array([1.0, 3.0, 3.0, -2.0, 0.5, 2.0, -1.0], dtype=np.float32)
SIZE = len(LOGITS)
GREEDY = Sampling(temperature=0)

penalties = st.floats(-2, 2, width=32)
shapings = st.builds(
    Sampling,
    temperature=st.sampled_from([0.0, 1e-6, 0.8, 1.0, 2.0]),
    top_p=st.sampled_from([0.3, 0.9, 1.0]),
    top_k=st.integers(0, SIZE + 1),
    seed=st.integers(0, 2**64 - 1),
    frequency_penalty=penalties,
    presence_penalty=penalties,
    repetition_penalty=st.floats(2.0**-100, 2.0**100, width=32),
    logit_bias=st.dictionaries(st.integers(0, SIZE - 1), st.floats(-100, 100, width=32)).map(
        lambda biases: tuple(biases.items())
    ),
    top_logprobs=st.one_of(st.none(), st.integers(0, 20)),
)
any_logits = st.lists(st.floats(-(2.0**127), 2.0**127, width=32), min_size=SIZE, max_size=SIZE).map(
    lambda logits: np.array(logits, dtype=np.float32)
)


@pytest.mark.parametrize("penalty", [0.5, 1.3, 2.0])
def test_the_repetition_penalty_is_that_of_transformers_on_prompt_and_reply(penalty):
    prompt, reply = [4, 1, 4, 3], [5, 1]
    expected = RepetitionPenaltyLogitsProcessor(penalty)(torch.tensor([prompt + reply]), torch.from_numpy(LOGITS)[None])
    shaped_V = shape_logits(LOGITS, Sampling(repetition_penalty=penalty), sorted(set(prompt)), {5: 1, 1: 1})

    assert np.allclose(shaped_V, expected[0].numpy(), rtol=1e-6)


def test_frequency_counts_each_time_presence_once_and_both_the_reply_alone():
    sampling = Sampling(frequency_penalty=0.5, presence_penalty=0.25)
    shaped_V = shape_logits(LOGITS, sampling, [0, 6], {1: 3, 5: 1})

    assert (shaped_V - LOGITS).tolist() == [0, -1.75, 0, 0, 0, -0.75, 0]


def test_a_bias_comes_on_top_of_penalties_and_may_ban_or_force():
    sampling = Sampling(repetition_penalty=2.0, logit_bias=((1, 4.0), (2, -100.0), (6, 100.0)))
    shaped_V = shape_logits(LOGITS, sampling, [1], {})

    assert shaped_V.tolist() == [1, 5.5, -97, -2, 0.5, 2, 99]
    assert {draw(shaped_V, Sampling(seed=1), position) for position in range(300)} == {6}


def test_what_is_shaped_is_a_copy():
    before = LOGITS.copy()
    drawer = Drawer(Sampling(temperature=0, presence_penalty=2.0, logit_bias=((0, 9.0),)), [1])
    for position in range(5):
        drawer.draw(LOGITS, position, np.ones(SIZE, dtype=bool), [2])

    assert np.array_equal(LOGITS, before)


@given(logits_V=any_logits, sampling=shapings, draws=st.integers(1, 6), allowed=st.sets(st.integers(0, SIZE - 1)))
def test_whatever_is_asked_of_whatever_logits_an_allowed_token_comes(logits_V, sampling, draws, allowed):
    allowed_V = None if not allowed else np.isin(np.arange(SIZE), list(allowed))
    drawer = Drawer(sampling, [0, 3])
    for position in range(draws):
        token, likelihood = drawer.draw(logits_V, position, allowed_V, held_ids=[1, 2])

        assert 0 <= token < SIZE
        assert not allowed or token in allowed
        assert token not in (1, 2) or (allowed and allowed <= {1, 2})
        assert (likelihood is None) == (sampling.top_logprobs is None)
        if likelihood is not None:
            told = [likelihood.logprob, *(logprob for _, logprob in likelihood.top)]
            assert all(LOGPROB_MIN <= logprob <= 0 for logprob in told)


@given(sampling=shapings, tokens=st.lists(st.integers(0, SIZE - 1), max_size=12), data=st.data())
def test_a_drawer_is_a_function_of_the_tokens_so_far_whatever_was_cropped(sampling, tokens, data):
    """Also of tokens it was only given: a session that goes on elsewhere draws what it would have drawn here."""
    start, pos = 7, data.draw(st.integers(5, 20))
    worn, fresh = Drawer(sampling, [2, 3]), Drawer(sampling, [2, 3])
    for place, token in enumerate(tokens):
        worn.take(start + place, token)
    worn.crop(pos)
    kept = [(start + place, token) for place, token in enumerate(tokens) if start + place <= pos]
    for position, token in kept:
        fresh.take(position, token)

    assert [worn.draw(LOGITS, position) for position in range(30, 36)] == [
        fresh.draw(LOGITS, position) for position in range(30, 36)
    ]


def test_nothing_is_kept_for_a_session_without_penalties():
    drawer = Drawer(Sampling(logit_bias=((1, 2.0),), top_logprobs=3))
    for position in range(20):
        drawer.draw(LOGITS, position)

    assert not drawer._drawn and not drawer._counts


@pytest.mark.parametrize("asked", [{}, {"top_p": 0.1}, {"top_k": 3}, {"seed": 9}, {"min_p": 0.5}, {"top_p": 1e-30}])
def test_temperature_zero_is_the_best_token_whatever_else_is_asked(asked):
    assert draw(LOGITS, Sampling(temperature=0, **asked), 5) == 1


@pytest.mark.parametrize("temperature", [0.0, 1e-45, 1e-30, 1e-6, 1e-4, 1e-2, 0.5, 1.0, 2.0, 100.0, 3e38])
@pytest.mark.parametrize("spread", [1e-30, 1.0, 1e30])
def test_a_sweep_of_temperatures_over_logits_of_every_size_gives_tokens(temperature, spread):
    """Field report 33: a temperature of 1e-4 gave NaN or nothing."""
    logits_V = (LOGITS * spread).astype(np.float32)
    with np.errstate(invalid="raise", divide="raise"):
        tokens = {draw(logits_V, Sampling(temperature=temperature, seed=4), position) for position in range(50)}

    assert tokens <= set(range(SIZE))
    assert temperature > 1e-4 or spread < 1 or tokens <= {1, 2}


def test_a_hold_takes_from_what_is_allowed_but_never_all_of_it():
    allowed_V = np.array([False, True, False, False, True, False, False])

    assert np.flatnonzero(permit(allowed_V, [1], SIZE)).tolist() == [4]
    assert np.flatnonzero(permit(allowed_V, [1, 4, 6], SIZE)).tolist() == [1, 4]
    assert np.flatnonzero(permit(None, [0, 6], SIZE)).tolist() == [1, 2, 3, 4, 5]
    assert permit(None, range(SIZE), SIZE) is None
    assert permit(None, [], SIZE) is None
    assert allowed_V.sum() == 2


def test_where_nothing_is_allowed_the_reply_fails():
    with pytest.raises(StageFailed, match="no token may come here"):
        Drawer(GREEDY).draw(LOGITS, 3, np.zeros(SIZE, dtype=bool), [1])


@given(logits_V=st.lists(st.floats(-50, 50, width=32), min_size=8, max_size=60), top=st.integers(0, 20), data=st.data())
def test_log_probabilities_are_those_of_the_raw_distribution(logits_V, top, data):
    logits_V = np.array(logits_V, dtype=np.float32)
    token = data.draw(st.integers(0, len(logits_V) - 1))
    expected = torch.from_numpy(logits_V).double().log_softmax(-1).numpy()
    logprob, told = log_probabilities(logits_V, token, top)

    assert math.isclose(logprob, expected[token], abs_tol=1e-9)
    order = sorted(range(len(logits_V)), key=lambda id: (-logits_V[id], id))[:top]
    assert [id for id, _ in told] == order
    assert np.allclose([one for _, one in told], expected[order], atol=1e-9)


def test_what_is_told_of_a_token_is_of_the_model_not_of_what_was_asked():
    plain = Drawer(Sampling(temperature=0, top_logprobs=2)).draw(LOGITS, 1)
    asked = Sampling(temperature=0, top_logprobs=2, top_k=1, logit_bias=((1, -50.0), (2, 50.0)), presence_penalty=2.0)
    shaped = Drawer(asked).draw(LOGITS, 1, np.arange(SIZE) == 2)

    assert plain[0] == 1 and shaped[0] == 2
    assert plain[1] == shaped[1]


def test_equally_likely_tokens_are_told_by_id_and_very_unlikely_ones_in_numbers_json_has():
    logprob, top = log_probabilities(np.array([0, 7e4, 0, 7e4, 7e4, 0], dtype=np.float32), 5, 4)

    assert [id for id, _ in top] == [1, 3, 4, 0]
    assert logprob == LOGPROB_MIN == top[3][1]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *[(field, value) for field in ("frequency_penalty", "presence_penalty") for value in (-2.1, 2.1, math.nan)],
        *[("repetition_penalty", value) for value in (0.0, -1.0, math.inf, math.nan)],
        *[("top_logprobs", value) for value in (-1, 21, 10**6)],
        *[("logit_bias", ((0, value),)) for value in (-100.1, 101.0, math.inf, -math.inf, math.nan)],
        ("logit_bias", ((3, 1.0), (3, 1.0))),
        ("logit_bias", ((-1, 1.0),)),
        ("logit_bias", tuple((id, 1.0) for id in range(BIASES_MAX + 1))),
    ],
)
def test_what_is_out_of_range_is_refused_by_name(field, value):
    with pytest.raises(BadRequest, match=field) as refused:
        Sampling(**{field: value})
    assert refused.value.facts["field"] == field
