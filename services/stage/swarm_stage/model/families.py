"""Which model families are served, and what their configs must not hold. Pure: no torch, no transformers, no I/O."""

from collections.abc import Mapping
from typing import Any

from swarm_core.decoder_config import known_keys
from swarm_core.errors import CapabilityMissing, ServableCorrupt
from swarm_core.families import SERVED_MODEL_TYPES, other_architecture

# Decoders whose every layer is causal self-attention plus a dense MLP. Each is checked token for token against
# transformers, cut into one to four slices (tests/unit/stage_model/test_parity.py).
MODEL_TYPES = frozenset(SERVED_MODEL_TYPES)
_ATTENTION_KINDS = {"full_attention", "sliding_attention"}
# Rotary embeddings that change with the length seen so far: prompts in pieces, or two sessions of different length,
# would rotate differently from one run over the whole text. Exact up to the length they were trained for.
_LENGTH_DEPENDENT_ROPES = {"longrope", "su"}


def check_servable(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config that may be built from: the keys of `config` (the parsed config.json) that a decoder is made of.

    What else transformers would act upon is left out: names of classes and kernels it would fetch and run
    (CVE-2026-4372), overrides for single layers, label tables of any length.
    Raises CapabilityMissing when the model is of a kind that is not served (the message names it and what is), and
    ServableCorrupt when the config has no model type or no layers, or a value is out of its range.
    """
    model_type = config.get("model_type")
    if not isinstance(model_type, str):
        raise ServableCorrupt("config.json names no model_type", field="model_type")
    if model_type not in MODEL_TYPES:
        wants_code = " (it asks for code of its own, which is never run)" if config.get("auto_map") else ""
        raise CapabilityMissing(
            f"models of type {model_type!r} are not served{wants_code}; served are: {', '.join(sorted(MODEL_TYPES))}",
            model_type=model_type,
        )
    refusal = _why_refused(config)
    if refusal:
        raise CapabilityMissing(f"this {model_type} model is not served: {refusal}", model_type=model_type)
    known = known_keys(config)
    if known.get("num_hidden_layers") is None:
        raise ServableCorrupt("config.json: num_hidden_layers is missing, which no default can stand for")
    return known


def context_tokens_max(config: Mapping[str, Any]) -> int | None:
    """Longest text the model is served with, tokens; None when the config does not say.

    For a rotary embedding that switches at a length (longrope) it is that length, less than what the model card says.
    """
    longest = config.get("max_position_embeddings")
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if isinstance(rope, Mapping) and (rope.get("rope_type") or rope.get("type")) in _LENGTH_DEPENDENT_ROPES:
        trained = rope.get("original_max_position_embeddings") or config.get("original_max_position_embeddings")
        longest = min(longest or trained, trained) if trained else longest
    return int(longest) if isinstance(longest, int | float) and 0 < longest < 2**31 else None


def _why_refused(config: Mapping[str, Any]) -> str | None:
    """What this config asks for that is not served; None when nothing."""
    if config.get("quantization_config"):
        return "its weights are stored quantised (quantization_config); import the full-precision checkpoint"
    if config.get("is_encoder_decoder"):
        return "it is an encoder-decoder"
    other = other_architecture(config)
    if other is not None:
        return f"its architecture is {other}, not the text decoder of its type"
    if config.get("use_bidirectional_attention") or config.get("is_causal") is False:
        return "its attention is not causal"
    layer_types = config.get("layer_types")
    unknown = sorted({str(kind) for kind in layer_types} - _ATTENTION_KINDS) if isinstance(layer_types, list) else []
    if unknown:
        return f"it has layers of type {', '.join(unknown)}; served are {', '.join(sorted(_ATTENTION_KINDS))}"
    return None
