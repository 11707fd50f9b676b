"""A model's config cut down to one slice. Builds config objects; touches no weights."""

from typing import Any

from swarm_core.errors import ServableCorrupt
from swarm_core.slices import LayerRange
from transformers import CONFIG_MAPPING, PreTrainedConfig

from swarm_stage.model.families import check_servable


def slice_config(config: dict[str, Any], layers: LayerRange) -> PreTrainedConfig:
    """The transformers config of a decoder that has only the layers of `layers`, numbered from 0.

    config: the parsed config.json, trusted in nothing. Every per-layer list in it is cut alike.
    Raises CapabilityMissing, or ServableCorrupt when it contradicts itself or `layers`.
    """
    whole = whole_config(config)
    if whole.num_hidden_layers != layers.layer_count:
        raise ServableCorrupt(
            f"config.json has {whole.num_hidden_layers} layers, the servable {layers.layer_count}",
            config_layers=whole.num_hidden_layers,
            servable_layers=layers.layer_count,
        )
    if not 0 <= layers.layer_start < layers.layer_stop <= layers.layer_count:
        raise ServableCorrupt(
            f"layers {layers.layer_start} to {layers.layer_stop} are no slice of {layers.layer_count} layers"
        )
    # A list that has one entry per layer is one entry per layer (layer_types, no_rope_layers); the lists of token ids
    # that may have the same length by chance play no part in the decoder.
    per_layer = {
        name: value[layers.layer_start : layers.layer_stop]
        for name, value in vars(whole).items()
        if isinstance(value, list | tuple) and len(value) == layers.layer_count
    }
    whole.num_hidden_layers = layers.layer_stop - layers.layer_start
    for name, entries in per_layer.items():
        setattr(whole, name, entries)
    return whole


def whole_config(config: dict[str, Any]) -> PreTrainedConfig:
    """The config object of the whole model. Raises ServableCorrupt with what transformers says is wrong."""
    clean = check_servable(config)
    try:
        return CONFIG_MAPPING[clean["model_type"]].from_dict(clean)
    except Exception as error:  # transformers raises whatever its validators raise
        raise ServableCorrupt(f"config.json is not a {clean['model_type']} config: {error}") from error
