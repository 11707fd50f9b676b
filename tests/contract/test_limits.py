"""Gateway, leader and stage each bound what a request may hold: what one lets through the next one takes."""

import pytest
from swarm_gateway.openai.reading import constraints, messages, sampling, tools
from swarm_leader.rpc import generation_shapes, generations
from swarm_stage.engine import sampling as drawing
from swarm_stage.text import content_grammar, grammar


@pytest.mark.parametrize(
    ("what", "at_gateway", "at_leader", "at_stage"),
    [
        ("choices", constraints.TEXTS_MAX, generation_shapes.CHOICES_MAX, content_grammar.CHOICES_MAX),
        ("biases", sampling.BIASES_MAX, generations.BIASES_MAX, drawing.BIASES_MAX),
        ("likelihoods", sampling.TOP_LOGPROBS_MAX, generations.TOP_LOGPROBS_MAX, drawing.TOP_LOGPROBS_MAX),
        ("regex", constraints.REGEX_CHARACTERS_MAX, generation_shapes.SHAPE_BYTES_MAX, content_grammar.REGEX_CHARS_MAX),
        ("grammar", constraints.GRAMMAR_CHARACTERS_MAX, generation_shapes.SHAPE_BYTES_MAX, grammar.GRAMMAR_BYTES_MAX),
        ("schema", tools.SCHEMA_BYTES_MAX, generation_shapes.SHAPE_BYTES_MAX, grammar.GRAMMAR_BYTES_MAX),
    ],
)
def test_what_the_gateway_lets_through_leader_and_stage_take(what, at_gateway, at_leader, at_stage):
    """Plain ASCII, a character a byte; what is larger as UTF-8 is the leader's to refuse, by the same field."""
    assert at_gateway <= min(at_leader, at_stage), what


def test_what_only_two_of_them_bound_they_bound_alike():
    assert tools.TOOLS_MAX == generation_shapes.TOOLS_MAX
    assert messages.CALLS_MAX == generation_shapes.CALLS_MAX
    assert sampling.STOP_CHARACTERS_MAX == generations.STOP_CHARACTERS_MAX
    assert sampling.STOPS_MAX <= generations.STOPS_MAX
