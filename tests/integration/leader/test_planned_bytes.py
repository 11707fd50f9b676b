"""What a plan says the weights of a stage take, against what a stage that was built holds."""

import pytest
from safetensors import safe_open
from swarm_core.manifest import Manifest, TensorEntry
from swarm_leader.domain.planning.budget import WeightForm, cost_of
from swarm_stage.model.build_slice import build_slice
from swarm_stage.model.holding import Holding

from tests.models import even_ranges, make_tiny_model, read_config, split_tensors

FORMS = [("none", ""), ("none", "F16"), ("nf4", ""), ("int8", ""), ("nf4", "BF16")]


def manifest_of(config, files) -> Manifest:
    """The sizes of a checkpoint, one tensor a file."""
    tensors = {}
    for name, path in files.items():
        with safe_open(path, "pt") as file:
            part = file.get_slice("tensor")
            shape, dtype = tuple(part.get_shape()), part.get_dtype()
        tensors[name] = TensorEntry("base/model.safetensors", 0, 0, dtype, shape, "0" * 64)
    return Manifest(
        model_id="org/tiny",
        model_type=config["model_type"],
        layer_count=config["num_hidden_layers"],
        hidden_size=config["hidden_size"],
        vocabulary_size=config["vocab_size"],
        kv_heads=2,
        head_dim=16,
        tied_embeddings="lm_head.weight" not in files,
        context_tokens_max=64,
        tensors=tensors,
        files={},
    )


@pytest.mark.parametrize("quantization, storage_dtype", FORMS)
@pytest.mark.parametrize("family", ["llama", "qwen2", "phi3"])
def test_a_stage_takes_what_was_planned_within_a_twentieth(tmp_path, family, quantization, storage_dtype):
    folder = make_tiny_model(family, tmp_path, hidden_size=64, intermediate_size=128, layers=2)
    config, files = read_config(folder), split_tensors(folder, folder / "tensors")
    manifest = manifest_of(config, files)
    form = WeightForm("F32", quantization, storage_dtype)
    holding = Holding("F32", quantization=quantization, storage_dtype=storage_dtype)

    for layers in [*even_ranges(2, 1), *even_ranges(2, 2)]:
        built = build_slice(config, layers, files, holding, lambda done, total: None)
        assert built.weight_bytes == pytest.approx(cost_of(manifest, form).weight_bytes(layers), rel=0.05)
