"""What a slice holds, refuses and forgets."""

import pytest
import torch
from safetensors.torch import load_file, save_file
from swarm_core.errors import BadFrame, BadRequest, CapabilityMissing, ContextTooLong, ServableCorrupt
from swarm_core.quantization import NONE
from swarm_core.slices import LayerRange
from swarm_stage.model.build_slice import build_slice
from swarm_stage.model.families import check_servable, context_tokens_max
from swarm_stage.model.holding import Holding
from swarm_stage.model.lean.cache import LeanCache

from tests.models import even_ranges, make_tiny_model, read_config, split_tensors
from tests.unit.stage_model.loading_peak import loading_peaks
from tests.unit.stage_model.slices import build_slices, run_greedy

PROMPT = [5, 9, 200, 7, 31]


@pytest.fixture
def llama(tmp_path):
    """A tiny Llama with its own head: folder, config and tensor files."""
    folder = make_tiny_model("llama", tmp_path, tied=False)
    return folder, read_config(folder), split_tensors(folder, tmp_path / "tensors")


def build(config, files, layers=None, dtype="F32", on_progress=lambda done, total: None):
    return build_slice(config, layers or LayerRange(0, 4, 4), files, Holding(dtype), on_progress)


def test_a_stage_needs_only_its_own_tensors(llama):
    _, config, files = llama
    middle = {name: path for name, path in files.items() if name.startswith(("model.layers.1.", "model.layers.2."))}
    part = build(config, middle, LayerRange(1, 3, 4))

    assert part.weight_bytes == sum(load_file(path)["tensor"].nbytes for path in middle.values())


def test_a_tied_head_is_held_once_and_counted_once(tmp_path):
    folder = make_tiny_model("qwen3", tmp_path, tied=True)
    whole, first, last = *build_slices(folder, 1), *build_slices(folder, 2)
    embedding_bytes = 320 * 48 * 4

    assert first.weight_bytes + last.weight_bytes == whole.weight_bytes + embedding_bytes


def test_progress_ends_at_the_bytes_of_the_files(llama):
    _, config, files = llama
    seen = []
    build(config, files, on_progress=lambda done, total: seen.append((done, total)))

    assert seen[0][0] == 0 and seen[-1][0] == seen[-1][1]
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_a_missing_tensor_is_named(llama):
    _, config, files = llama
    for name in ("model.layers.2.mlp.up_proj.weight", "lm_head.weight", "model.norm.weight"):
        with pytest.raises(ServableCorrupt, match=name):
            build(config, {key: path for key, path in files.items() if key != name})


def test_a_tensor_of_another_shape_is_named_with_both_shapes(llama, tmp_path):
    _, config, files = llama
    save_file({"tensor": torch.zeros(48, 47)}, tmp_path / "wrong.safetensors")
    files["model.layers.0.self_attn.o_proj.weight"] = str(tmp_path / "wrong.safetensors")

    with pytest.raises(ServableCorrupt, match=r"o_proj.weight has shape \[48, 47\], the config needs \[48, 64\]"):
        build(config, files)


def test_a_truncated_file_is_named(llama, tmp_path):
    _, config, files = llama
    broken = tmp_path / "broken.safetensors"
    broken.write_bytes(b"\x10")
    files["model.norm.weight"] = str(broken)

    with pytest.raises(ServableCorrupt, match=r"model\.norm\.weight cannot be read"):
        build(config, files)


def test_a_tensor_the_config_has_no_place_for_is_refused(llama, tmp_path):
    _, config, files = llama
    files["model.layers.1.self_attn.q_norm.weight"] = files["model.norm.weight"]

    with pytest.raises(ServableCorrupt, match=r"q_norm\.weight has no place"):
        build(config, files)


def test_a_family_that_is_not_served_is_refused_by_name():
    with pytest.raises(CapabilityMissing, match=r"'mamba2' are not served; served are: .*llama.*qwen3"):
        check_servable({"model_type": "mamba2", "num_hidden_layers": 4})
    with pytest.raises(CapabilityMissing, match="code of its own"):
        check_servable({"model_type": "odd", "auto_map": {"AutoModel": "odd.Odd"}})


@pytest.mark.parametrize(
    ("extra", "says"),
    [
        ({"quantization_config": {"quant_method": "gptq"}}, "quantised"),
        ({"layer_types": ["linear_attention"] * 4}, "linear_attention"),
        ({"use_bidirectional_attention": True}, "not causal"),
        ({"is_encoder_decoder": True}, "encoder-decoder"),
    ],
)
def test_a_served_family_in_a_form_that_is_not_served_is_refused(llama, extra, says):
    _, config, files = llama
    with pytest.raises(CapabilityMissing, match=says):
        build({**config, **extra}, files)


@pytest.mark.parametrize(
    "extra", [{"num_attention_heads": 0}, {"hidden_size": "big"}, {"num_hidden_layers": 5}, {"model_type": 3}]
)
def test_a_config_that_contradicts_itself_is_corrupt(llama, extra):
    _, config, files = llama
    with pytest.raises(ServableCorrupt):
        build({**config, **extra}, files)


def test_keys_that_name_code_or_kernels_have_no_effect(llama):
    folder, config, files = llama
    hostile = {
        "_attn_implementation_internal": "evil/kernel",
        "_attn_implementation": "evil/kernel",
        "attn_implementation": "evil/kernel",
        "auto_map": {"AutoModelForCausalLM": "evil.Evil"},
    }
    part = build({**config, **hostile}, files)

    assert run_greedy([part], PROMPT, 3)[0] == run_greedy(build_slices(folder, 1), PROMPT, 3)[0]


def test_a_crop_forgets_exactly_what_followed(tmp_path):
    """Also in a layer with a sliding window that the text has long outgrown."""
    (part,) = build_slices(make_tiny_model("mistral", tmp_path, sliding_window=4), 1)
    text = list(range(10, 40))
    cache, again = part.new_cache(), part.new_cache()
    part.run(part.embed(text), cache, 0)
    want = part.logits(part.run(part.embed([7]), cache, len(text)))

    part.run(part.embed([8, 9, 11, 12]), cache, len(text))  # crops to pos itself
    cache.crop(len(text))
    assert torch.equal(part.logits(part.run(part.embed([7]), cache, len(text))), want)
    part.run(part.embed([*text, 50, 51]), again, 0)
    again.crop(0)
    assert again.length == 0
    part.run(part.embed(text), again, 0)
    assert torch.equal(part.logits(part.run(part.embed([7]), again, len(text))), want)


def test_the_price_of_a_position_is_what_the_cache_takes(tmp_path):
    for family in ("llama", "qwen2", "phi3", "gemma3_text"):
        part = build_slices(make_tiny_model(family, tmp_path / family), 2)[1]
        cache = part.new_cache()
        part.run(torch.zeros(1, 10, part.hidden_size), cache, 0)
        if isinstance(cache, LeanCache):
            held = cache.k[:, :, : cache.length].nbytes + cache.v[:, :, : cache.length].nbytes
        else:
            held = sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers.layers)

        assert held == 10 * part.kv_bytes_per_token


def test_a_frame_that_cannot_follow_is_refused_and_the_cache_stays(llama):
    _, config, files = llama
    part = build(config, files)
    cache = part.new_cache()
    part.run(part.embed(PROMPT), cache, 0)

    with pytest.raises(BadFrame, match="position 7 does not follow the 5 held"):
        part.run(part.embed([1]), cache, 7)
    with pytest.raises(BadFrame, match=r"not \[1, T, 48\]"):
        part.run(torch.zeros(1, 2, 47), cache, 5)
    with pytest.raises(BadRequest, match="token id 320 is not below 320"):
        part.embed([4, 320])
    with pytest.raises(ContextTooLong, match="1025 is beyond the model's 1024"):
        part.run(torch.zeros(1, 1020, 48), cache, 5)
    assert cache.length == 5


def test_a_rotary_embedding_that_switches_is_served_up_to_its_switch():
    rope = {"rope_type": "longrope", "original_max_position_embeddings": 4096}
    assert context_tokens_max({"max_position_embeddings": 131072, "rope_parameters": rope}) == 4096
    phi3 = {"max_position_embeddings": 131072, "original_max_position_embeddings": 4096}
    assert context_tokens_max({**phi3, "rope_scaling": {"type": "su"}}) == 4096
    assert context_tokens_max({"max_position_embeddings": 8192}) == 8192


def test_building_half_a_model_takes_little_more_than_its_half(tmp_path):
    """A model of 200 MB, cut in two; what counts is the highest the resident set ever was."""
    shape = {"hidden_size": 512, "intermediate_size": 3072, "num_attention_heads": 8, "head_dim": 64}
    folder = make_tiny_model("llama", tmp_path / "big", layers=8, num_key_value_heads=8, vocab_size=1000, **shape)
    (peak,) = loading_peaks(folder, make_tiny_model("llama", tmp_path / "tiny"), 4, [NONE], tmp_path)

    assert peak.slice_bytes > 80e6
    assert peak.grown_bytes <= 1.3 * peak.slice_bytes + 16e6, peak


def test_ranges_cover_all_layers():
    assert [(r.layer_start, r.layer_stop) for r in even_ranges(6, 4)] == [(0, 1), (1, 3), (3, 4), (4, 6)]
