"""What a model takes in memory, told before anybody loads it."""

from dataclasses import replace

from swarm_core.servable_parts import AdapterOf
from swarm_leader.domain.held import price_weights

from tests.unit.leader.model_facts import make_manifest, make_tensor


def test_only_linear_layers_get_smaller_and_every_method_is_priced():
    plain = make_manifest(layer_count=1, dtype="BF16", layer_elements=256)
    linear = {"model.layers.0.self_attn.q_proj.weight": make_tensor((128, 256), "BF16")}
    manifest = replace(plain, tensors={**plain.tensors, **linear})

    priced = price_weights(manifest)

    rest = plain.weight_bytes
    assert priced == {
        "none": manifest.weight_bytes,
        "nf4": rest + 128 * 256 // 2 + 128 * 256 // 64 * 4,
        "int8": rest + 128 * 256 + 128 * 4,
        "int4-fast": rest + 128 * 256 // 2 + 128 * 2 * 4,
    }


def test_an_adapter_is_priced_with_its_base_alone():
    adapter = AdapterOf("org/base", rank=4, targets=("q_proj",), scale=2.0)

    assert price_weights(replace(make_manifest(), adapter=adapter)) == {}
