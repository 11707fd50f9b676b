"""What a config.json leaves out means what the transformers library takes it to mean."""

import json

import pytest
from swarm_core.families import FAMILIES, SERVED_MODEL_TYPES
from swarm_leader.catalog.sources.config_json import parse_config
from swarm_stage.model.families import MODEL_TYPES, context_tokens_max
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

SIZES = {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 32, "vocab_size": 100}


@pytest.mark.parametrize("model_type", SERVED_MODEL_TYPES)
def test_the_defaults_of_a_family_are_those_of_its_config_class(model_type: str):
    theirs = CONFIG_MAPPING[model_type](**SIZES)
    ours = parse_config(json.dumps({"model_type": model_type, **SIZES}).encode())

    assert ours.tied_embeddings == theirs.tie_word_embeddings
    assert ours.head_dim == (getattr(theirs, "head_dim", None) or 64 // 32)
    assert ours.kv_heads == theirs.num_key_value_heads
    assert (ours.layer_count, ours.hidden_size, ours.vocabulary_size) == (2, 64, 100)


@pytest.mark.parametrize("model_type", SERVED_MODEL_TYPES)
def test_what_a_config_says_wins_over_the_defaults(model_type: str):
    said = {"tie_word_embeddings": not FAMILIES[model_type].is_tied, "head_dim": 7, "num_key_value_heads": 3}
    ours = parse_config(json.dumps({"model_type": model_type, **SIZES, **said}).encode())

    assert (ours.tied_embeddings, ours.head_dim, ours.kv_heads) == (said["tie_word_embeddings"], 7, 3)
    assert ours.context_tokens_max == 0


def test_what_the_leader_imports_is_what_a_stage_serves():
    assert set(SERVED_MODEL_TYPES) == MODEL_TYPES


def test_null_means_absent():
    ours = parse_config(
        json.dumps({"model_type": "llama", **SIZES, "head_dim": None, "num_key_value_heads": None}).encode()
    )

    assert (ours.head_dim, ours.kv_heads) == (2, 32)


@pytest.mark.parametrize(
    ("rope", "longest"),
    [
        ({}, 131072),
        ({"rope_scaling": {"type": "longrope"}, "original_max_position_embeddings": 4096}, 4096),
        ({"rope_parameters": {"rope_type": "longrope", "original_max_position_embeddings": 8192}}, 8192),
        ({"rope_scaling": {"rope_type": "llama3", "original_max_position_embeddings": 8192}}, 131072),
    ],
)
def test_a_model_is_served_as_long_as_a_stage_serves_it(rope, longest):
    document = {"model_type": "llama", **SIZES, "max_position_embeddings": 131072, **rope}

    assert parse_config(json.dumps(document).encode()).context_tokens_max == longest
    assert context_tokens_max(document) == longest
