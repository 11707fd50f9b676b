"""What a fellow reads of `swarm-stage benchmark`."""

import json

import pytest
from swarm_stage.benchmark import benchmark


def test_a_processor_says_how_fast_it_multiplies_in_the_one_type_it_computes_in():
    figures = json.loads(benchmark("cpu"))

    assert list(figures) == ["float32_flops"]
    assert 1e8 < figures["float32_flops"] < 1e14


def test_a_card_that_is_not_there_says_nothing():
    with pytest.raises((RuntimeError, AssertionError)):
        benchmark("cuda:9")
