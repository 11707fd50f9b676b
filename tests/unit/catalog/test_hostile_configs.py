"""config.json as an attack: what a stage builds from is what a decoder is made of, and nothing else."""

import dataclasses
import json
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from swarm_core.decoder_config import known_keys
from swarm_core.errors import BadRequest, CapabilityMissing, ServableCorrupt, SwarmError
from swarm_core.families import FAMILIES, SERVED_MODEL_TYPES
from swarm_core.slices import LayerRange
from swarm_leader.catalog.sources.config_json import parse_config
from swarm_stage.model.families import check_servable
from swarm_stage.model.skeleton import empty_decoder
from swarm_stage.model.slice_config import slice_config, whole_config
from transformers import CONFIG_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING, PreTrainedConfig

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "vocab_size": 100,
}
# Of every config class; none of them changes what a decoder computes.
LEFT_OUT = {"chunk_size_feed_forward", "id2label", "label2id", "output_hidden_states", "problem_type", "return_dict"}
LEFT_OUT |= {"transformers_version"}


def imported(config: dict[str, Any]) -> dict[str, Any]:
    """What the leader publishes of a config."""
    return parse_config(json.dumps(config).encode()).document


@pytest.mark.parametrize("model_type", SERVED_MODEL_TYPES)
def test_every_key_a_family_declares_is_kept(model_type: str):
    """A key that transformers adds in a later version fails here, instead of being lost in silence."""
    declared = {field.name for field in dataclasses.fields(CONFIG_MAPPING[model_type])}

    assert declared - set(known_keys(dict.fromkeys(declared))) <= LEFT_OUT


@pytest.mark.parametrize("model_type", SERVED_MODEL_TYPES)
def test_every_family_is_known_by_the_name_of_its_class(model_type: str):
    name = MODEL_FOR_CAUSAL_LM_MAPPING[CONFIG_MAPPING[model_type]].__name__
    config = {**LLAMA, "model_type": model_type, "architectures": [name]}

    assert check_servable(config)["architectures"] == imported(config)["architectures"] == [name]
    assert FAMILIES[model_type].architecture in name


@pytest.mark.parametrize(
    "named",
    [
        ["LlamaForSequenceClassification"],
        ["LlamaForCausalLM", "EvilModel"],
        ["GPT2LMHeadModel"],
        ["../evil"],
        [7],
        "os.system",
        {"a": 1},
    ],
)
def test_an_architecture_of_another_kind_is_refused_on_both_sides(named: Any):
    with pytest.raises(BadRequest, match="LlamaForCausalLM is served"):
        imported({**LLAMA, "architectures": named})
    with pytest.raises(CapabilityMissing, match="not the text decoder of its type"):
        check_servable({**LLAMA, "architectures": named})


@pytest.mark.parametrize("named", [None, [], ["LLaMAForCausalLM"], ["LlamaModel"]])
def test_an_architecture_may_be_missing_or_written_as_it_once_was(named: Any):
    assert check_servable({**LLAMA, "architectures": named})


HOSTILE: dict[str, Any] = {
    "_attn_implementation": "evil/kernel",
    "_attn_implementation_internal": "evil/kernel",
    "_experts_implementation_internal": "evil/kernel",
    "_name_or_path": "evil/model",
    "_commit_hash": "0" * 40,
    "_auto_class": "Evil",
    "__class__": "Evil",
    "attn_implementation": "evil/kernel:flash",
    "experts_implementation": "evil/kernel",
    "name_or_path": "evil/model",
    "trust_remote_code": True,
    "custom_pipelines": {"x": {"impl": "evil.Evil"}},
    "num_labels": 10**9,
    "id2label": {"0": "x"},
    "per_layer_config": {"0": {"hidden_size": 1}},
    "output_attentions": True,
    "use_kernels": True,
    "kernel_config": {"RMSNorm": "evil/kernel:RMSNorm"},
    "base_model_tp_plan": {"layers.*": "evil"},
    "sub_configs": {"text_config": "evil"},
    "text_config": {"_attn_implementation": "evil/kernel", "auto_map": {"AutoModel": "evil.Evil"}},
    "to_dict": "not a method",
    "from_dict": "not a method",
    "validate_rope": "not a method",
    "attribute_map": {"hidden_size": "vocab_size"},
    "model_type2": "x",
    "is_causal_": 1,
}


@pytest.mark.parametrize("key", sorted(HOSTILE))
def test_a_key_no_decoder_is_made_of_reaches_neither_the_servable_nor_transformers(key: str):
    config = {**LLAMA, key: HOSTILE[key]}

    assert imported(config) == LLAMA
    assert check_servable(config) == LLAMA
    assert whole_config(config).to_dict() == whole_config(LLAMA).to_dict()


def test_nothing_underscored_is_set_from_a_config():
    built = whole_config({**LLAMA, **HOSTILE})

    assert built._attn_implementation is None and built._experts_implementation is None
    assert built.name_or_path == "" and isinstance(built, PreTrainedConfig)


@pytest.mark.parametrize(
    "quantization",
    [
        {"quant_method": "gptq"},
        {"quant_method": "torchao", "quant_type": {"default": {"_type": "Evil"}}},
        {"quant_method": "../../evil", "modules_to_not_convert": ["x"] * 3},
        "evil",
        [1],
    ],
)
def test_a_quantisation_is_refused_whatever_class_it_names(quantization: Any):
    with pytest.raises(BadRequest, match="already quantised"):
        imported({**LLAMA, "quantization_config": quantization})
    with pytest.raises(CapabilityMissing, match="quantised"):
        check_servable({**LLAMA, "quantization_config": quantization})


ABSURD: list[dict[str, Any]] = [
    {"num_hidden_layers": 10**9},
    {"num_hidden_layers": 1025},
    {"num_hidden_layers": -1},
    {"num_hidden_layers": "2"},
    {"num_hidden_layers": True},
    {"num_hidden_layers": 2.0},
    {"num_hidden_layers": [2]},
    {"hidden_size": 2**40},
    {"hidden_size": 0},
    {"hidden_size": float("nan")},
    {"intermediate_size": 10**18},
    {"num_attention_heads": 2**31},
    {"num_key_value_heads": 0},
    {"head_dim": 10**6},
    {"head_dim": "64; rm"},
    {"vocab_size": 2**62},
    {"vocab_size": -5},
    {"max_position_embeddings": 2**80},
    {"max_position_embeddings": float("inf")},
    {"rms_norm_eps": float("nan")},
    {"rms_norm_eps": -1},
    {"rms_norm_eps": "1e-6"},
    {"hidden_act": "__import__('os')"},
    {"hidden_act": ["silu"]},
    {"hidden_act": "evil/kernel"},
    {"dtype": "float32\n"},
    {"torch_dtype": {"a": 1}},
    {"layer_types": ["full_attention"] * 2000},
    {"layer_types": "full_attention"},
    {"layer_types": [["full_attention"]]},
    {"rope_theta": 0},
    {"rope_theta": float("inf")},
    {"rope_scaling": [1]},
    {"rope_scaling": {"rope_type": ["x"]}},
    {"rope_scaling": {"rope_type": "yarn", "factor": float("nan")}},
    {"rope_scaling": {"rope_type": "longrope", "short_factor": [1.0] * 10**5}},
    {"rope_scaling": {"rope_type": "longrope", "long_factor": ["a"]}},
    {"rope_parameters": {"full_attention": {"rope_theta": -1}}},
    {"rope_parameters": {"rope_theta": 10**400}},
    {"eos_token_id": [0] * 10**4},
    {"eos_token_id": {"a": 1}},
    {"pad_token_id": -2},
    {"bos_token_id": 2**40},
    {"sliding_window": -1},
    {"tie_word_embeddings": "yes"},
    {"tie_word_embeddings": 1},
]


@pytest.mark.parametrize("absurd", ABSURD, ids=lambda absurd: str(absurd)[:60])
def test_an_absurd_value_is_refused_by_its_key_on_both_sides(absurd: dict[str, Any]):
    (key,) = absurd
    for reader in (imported, check_servable):
        with pytest.raises((ServableCorrupt, BadRequest, CapabilityMissing), match=key.replace("layer_types", "layer")):
            reader({**LLAMA, **absurd})


def test_parameters_of_a_rotary_embedding_are_known_ones_too():
    rope = {"rope_type": "llama3", "factor": 8.0, "_evil": 1, "full_attention": {"rope_theta": 1e4, "evil": {"a": 1}}}

    assert known_keys({"rope_parameters": rope}) == {
        "rope_parameters": {"rope_type": "llama3", "factor": 8.0, "full_attention": {"rope_theta": 1e4}}
    }


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None)
@given(
    key=st.sampled_from(sorted(known_keys(dict.fromkeys(LLAMA)) | {"rope_scaling": 0, "layer_types": 0})), value=JSON
)
def test_whatever_stands_in_a_key_a_decoder_is_built_or_refused(key: str, value: Any):
    config = {**LLAMA, key: value}
    try:
        empty_decoder(slice_config(config, LayerRange(0, 2, 2)), LayerRange(0, 2, 2), torch.float32)
    except SwarmError:
        return
    assert known_keys(config) == check_servable(config)
