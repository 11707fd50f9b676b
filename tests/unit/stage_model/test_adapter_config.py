"""What adapter_config.json may say, and what peft makes of the same words."""

import json
import math

import pytest
import torch
from peft import LoraConfig, get_peft_model
from swarm_core.errors import CapabilityMissing, ServableCorrupt
from swarm_core.servable_parts import DORA, LORA, LORA_RANK_MAX
from swarm_stage.model.adapters.config import adapter_config, read_adapter_config

from tests.models import load_reference, make_tiny_model

PLAIN = {"peft_type": "LORA", "r": 8, "lora_alpha": 16}
MODULE = "model.layers.1.self_attn.q_proj"


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return make_tiny_model("llama", tmp_path_factory.mktemp("llama"), layers=2)


def test_a_scale_is_alpha_by_rank_or_by_its_root():
    assert adapter_config(PLAIN).scale_of(MODULE) == 2.0
    assert adapter_config({**PLAIN, "use_rslora": True}).scale_of(MODULE) == 16 / math.sqrt(8)


@pytest.mark.parametrize("uses_rslora", [True, False])
@pytest.mark.parametrize(
    "patterns",
    [
        {"alpha_pattern": {"q_proj": 4, "layers.1.self_attn.q_proj": 32}},
        {"alpha_pattern": {"^model.layers.1.self_attn.v_proj$": 5}, "rank_pattern": {"v_proj": 3, "roj": 5}},
        {"rank_pattern": {"layers\\.0\\.mlp\\.down_proj": 2, "model.layers.1.mlp.up_proj": 16}},
        {"rank_pattern": {"^layers.1.mlp.up_proj": 2}, "alpha_pattern": {"o_proj$": 7}},
    ],
)
def test_patterns_choose_ranks_and_scales_as_peft_does(llama, patterns, uses_rslora):
    """peft itself makes the layers; every one of them has the rank and the scale that we compute."""
    config = LoraConfig(r=8, lora_alpha=16, target_modules="all-linear", use_rslora=uses_rslora, **patterns)
    model = get_peft_model(load_reference(llama), config).base_model.model
    ours = adapter_config({**PLAIN, "use_rslora": uses_rslora, **patterns})
    layers = {name: module for name, module in model.named_modules() if hasattr(module, "scaling") and "_proj" in name}

    assert len(layers) == 14
    for name, layer in layers.items():
        assert ours.rank_of(name) == layer.r["default"], name
        assert ours.scale_of(name) == pytest.approx(layer.scaling["default"]), name
    assert len({layer.scaling["default"] for layer in layers.values()}) > 1


@pytest.mark.parametrize("pattern", ["(a+)+b", "q_proj|v_proj", ".*_proj", "layers.[01].mlp", "", "a" * 300])
def test_a_pattern_that_is_a_regular_expression_is_refused_by_name(pattern):
    """peft matches any; one that never ends would hold the load up for ever."""
    with pytest.raises(CapabilityMissing, match="alpha_pattern"):
        adapter_config({**PLAIN, "alpha_pattern": {pattern: 4}})


@pytest.mark.parametrize("rank", [0, -1, LORA_RANK_MAX + 1, 2.5, True, None, "8", 10**400])
def test_a_rank_that_is_none_is_refused(rank):
    with pytest.raises(ServableCorrupt, match="rank"):
        adapter_config({**PLAIN, "r": rank})
    with pytest.raises(ServableCorrupt, match="rank_pattern of q_proj"):
        adapter_config({**PLAIN, "rank_pattern": {"q_proj": rank}})


@pytest.mark.parametrize("alpha", [math.nan, math.inf, None, "16", True, 10**400, []])
def test_a_scale_that_is_no_number_is_refused(alpha):
    with pytest.raises(ServableCorrupt, match="lora_alpha"):
        adapter_config({**PLAIN, "lora_alpha": alpha})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("bias", "all"),
        ("lora_bias", True),
        ("fan_in_fan_out", True),
        ("modules_to_save", ["lm_head"]),
        ("trainable_token_indices", [5]),
        ("target_parameters", ["mlp.experts"]),
        ("layer_replication", [[0, 4], [2, 5]]),
        ("alora_invocation_tokens", [7]),
        ("use_qalora", True),
        ("init_lora_weights", "pissa"),
        ("init_lora_weights", "olora"),
        ("init_lora_weights", 1),
        ("arrow_config", {"top_k": 2}),
    ],
)
def test_what_changes_more_than_linear_layers_is_refused_by_name(field, value):
    with pytest.raises(CapabilityMissing, match=field) as refusal:
        adapter_config({**PLAIN, field: value})
    assert refusal.value.facts["field"] == field


@pytest.mark.parametrize("kind", ["LOHA", "IA3", "PROMPT_TUNING", None, 5])
def test_other_kinds_of_adapters_are_refused_by_name(kind):
    with pytest.raises(CapabilityMissing, match=str(kind)):
        adapter_config({**PLAIN, "peft_type": kind})


def test_what_peft_writes_for_a_plain_adapter_is_taken(llama, tmp_path):
    """Every field of the current release, with its default."""
    config = LoraConfig(r=8, lora_alpha=16, target_modules=["q_proj"], use_dora=True)
    torch.manual_seed(0)
    get_peft_model(load_reference(llama), config).save_pretrained(tmp_path)
    read = read_adapter_config(tmp_path)

    assert (read.rank, read.alpha, read.variant) == (8, 16.0, DORA)
    assert adapter_config(PLAIN).variant == LORA


def test_a_file_that_is_missing_broken_or_huge_is_refused(tmp_path):
    with pytest.raises(ServableCorrupt, match=r"adapter_config\.json"):
        read_adapter_config(tmp_path)
    for raw in (b"[]", b"{", json.dumps({**PLAIN, "x": "y" * 2**20}).encode()):
        (tmp_path / "adapter_config.json").write_bytes(raw)
        with pytest.raises(ServableCorrupt, match=r"adapter_config\.json"):
            read_adapter_config(tmp_path)
