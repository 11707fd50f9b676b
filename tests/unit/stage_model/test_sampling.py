"""Drawing a token: the right distribution, and nothing but the arguments decides."""

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from swarm_core.errors import BadRequest, StageFailed
from swarm_stage.engine.sampling import Sampling
from swarm_stage.model.sampling import draw, uniform_at
from transformers.generation.logits_process import (
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

GOLDEN = [1, 2, 1, 1, 2, 1, 2, 2, 2, 1, 1, 2]
GOLDEN_UNIFORM = 0.20353554039193045
LOGITS = torch.tensor([1.0, 3.0, 3.0, -2.0, 0.5, 2.0, -1.0])


def drawn(logits_V, draws=2000, **asked):
    """How often each token came, over many positions."""
    return Counter(draw(logits_V, Sampling(**asked), position) for position in range(draws))


def test_the_same_seed_and_position_draw_the_same_token_in_any_order():
    sampling = Sampling(seed=7)
    forward = [draw(LOGITS, sampling, position) for position in range(50)]
    backward = [draw(LOGITS, sampling, position) for position in reversed(range(50))]

    assert forward == backward[::-1]
    assert forward != [draw(LOGITS, Sampling(seed=8), position) for position in range(50)]


def test_these_draws_never_change():
    """Replays of recorded replies depend on them, on every machine and after every release."""
    assert [draw(LOGITS, Sampling(seed=1234), position) for position in range(12)] == GOLDEN
    assert uniform_at(2**64 - 1, 2**40) == pytest.approx(GOLDEN_UNIFORM, abs=0)


def test_uniform_numbers_are_uniform():
    numbers = np.array([uniform_at(3, position) for position in range(4000)])

    assert numbers.min() >= 0 and numbers.max() < 1
    assert np.abs(np.histogram(numbers, 10, (0, 1))[0] - 400).max() < 100
    assert abs(np.corrcoef(numbers[:-1], numbers[1:])[0, 1]) < 0.05


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"temperature": 0.7, "top_k": 3},
        {"top_p": 0.8},
        {"top_p": 0.3},
        {"min_p": 0.2},
        {"temperature": 1.5, "top_k": 5, "top_p": 0.9, "min_p": 0.05},
        {"top_k": 1},
    ],
)
def test_frequencies_are_those_of_transformers_filters(asked):
    logits_V = LOGITS + torch.arange(7) * 0.01  # no ties: transformers keeps any one of two
    scores = logits_V[None].double()
    for name, warper in (
        ("temperature", TemperatureLogitsWarper),
        ("top_k", TopKLogitsWarper),
        ("top_p", TopPLogitsWarper),
        ("min_p", MinPLogitsWarper),
    ):
        if name in asked:
            scores = warper(asked[name])(None, scores)
    expected = scores.softmax(-1)[0].tolist()
    counts = drawn(logits_V, **asked)

    for token_id, probability in enumerate(expected):
        assert abs(counts[token_id] / 2000 - probability) < 4 * (probability / 2000) ** 0.5 + 1e-9


def test_greedy_takes_the_lowest_id_at_a_tie():
    assert draw(LOGITS, Sampling(temperature=0), 5) == 1


@pytest.mark.parametrize("temperature", [1e-4, 1e-6, 1e-30, 5e-324])
def test_a_tiny_temperature_is_greedy_between_the_best(temperature):
    assert set(drawn(LOGITS, 50, temperature=temperature)) <= {1, 2}
    assert set(drawn(LOGITS * 1e30, 50, temperature=temperature)) <= {1, 2}


def test_a_huge_temperature_reaches_every_token():
    assert set(drawn(LOGITS, 500, temperature=1e6)) == set(range(7))


@given(
    logits=st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=1, max_size=20),
    temperature=st.floats(0, 1e3),
    top_p=st.floats(0, 1, exclude_min=True),
    top_k=st.integers(0, 30),
    min_p=st.floats(0, 1),
    seed=st.integers(0, 2**64 - 1),
    position=st.integers(0, 2**31),
)
def test_whatever_is_asked_one_of_the_tokens_comes(logits, temperature, top_p, top_k, min_p, seed, position):
    sampling = Sampling(temperature, top_p, top_k, min_p, seed)
    token_id = draw(torch.tensor(logits), sampling, position)

    assert 0 <= token_id < len(logits)
    if top_k == 1 or temperature == 0 or min_p == 1:
        assert logits[token_id] == max(logits)


@pytest.mark.parametrize("broken", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_broken_logits_are_a_failure_of_the_stage(broken, temperature):
    with pytest.raises(StageFailed, match="1 of 3 logits"):
        draw(torch.tensor([0.0, broken, 1.0]), Sampling(temperature=temperature), 0)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -0.1),
        ("temperature", float("nan")),
        ("temperature", float("inf")),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("top_k", -1),
        ("min_p", 1.5),
        ("seed", 2**64),
        ("seed", -1),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(field, value):
    with pytest.raises(BadRequest, match=field) as refused:
        Sampling(**{field: value})
    assert refused.value.facts["field"] == field
