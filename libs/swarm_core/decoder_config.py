"""The keys of a config.json that a served decoder is built from, and the range of each. Pure.

Every other key is left out: libraries read more from a config than what a decoder computes (classes to import, kernels
to fetch, other attributes for single layers, label tables of any length), and the next version may read still more.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from swarm_core.errors import ServableCorrupt

LAYERS_MAX = 1024  # the deepest decoders published have some 130
_EXTENT_MAX = 2**20
_TOKENS_MAX = 2**31 - 1
_IDS_MAX = 256
_ROPE_FACTORS_MAX = 2**14  # half a head's size
_WORD = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)


class _Kind(NamedTuple):
    """What a value must be, in words, and whether one is."""

    words: str
    holds: Callable[[Any], bool]


def known_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a parsed config.json that is understood, each value within its range.

    null stays null. Raises ServableCorrupt naming the first key whose value is of another kind or out of range.
    """
    known = {key: _checked(key, config[key], _KEYS[key]) for key in _KEYS if key in config}
    for key in ("rope_parameters", "rope_scaling"):
        if known.get(key) is not None:
            known[key] = _known_rope(known[key], key, nested=True)
    return known


def _checked(key: str, value: Any, kind: _Kind) -> Any:
    if value is not None and not kind.holds(value):
        raise ServableCorrupt(f"config.json: {key} is {str(value)[:60]}, not {kind.words}", field=key)
    return value


def _whole(least: int, most: int) -> _Kind:
    return _Kind(
        f"a whole number from {least} to {most}",
        lambda value: isinstance(value, int) and not isinstance(value, bool) and least <= value <= most,
    )


def _number(least: float, most: float) -> _Kind:
    """A finite number in a range; NaN is in none."""
    return _Kind(
        f"a number from {least:g} to {most:g}",
        lambda value: isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most,
    )


def _list_of(kind: _Kind, most: int) -> _Kind:
    return _Kind(
        f"a list of at most {most}, each {kind.words}",
        lambda value: isinstance(value, list) and len(value) <= most and all(map(kind.holds, value)),
    )


def _either(one: _Kind, other: _Kind) -> _Kind:
    return _Kind(f"{one.words}, nor {other.words}", lambda value: one.holds(value) or other.holds(value))


_flag = _Kind("true or false", lambda value: isinstance(value, bool))
_word = _Kind("a plain word", lambda value: isinstance(value, str) and _WORD.fullmatch(value) is not None)
_object = _Kind("an object", lambda value: isinstance(value, dict))
_tokens = _number(1, _TOKENS_MAX)  # some write the longest text as a float
_id = _whole(-1, _TOKENS_MAX)  # -1: "none" in old checkpoints
_ids = _either(_id, _list_of(_id, _IDS_MAX))
_share = _number(0, 1)
_factor = _number(-1e9, 1e9)

_KEYS: Mapping[str, _Kind] = {
    "model_type": _word,
    "architectures": _list_of(_word, 8),
    "dtype": _word,
    "torch_dtype": _word,
    "tokenizer_class": _word,
    "is_encoder_decoder": _flag,
    "tie_word_embeddings": _flag,
    "use_cache": _flag,
    # sizes
    "num_hidden_layers": _whole(1, LAYERS_MAX),
    "hidden_size": _whole(1, _EXTENT_MAX),
    "intermediate_size": _whole(1, 2**24),
    "num_attention_heads": _whole(1, 2**16),
    "num_key_value_heads": _whole(1, 2**16),
    "head_dim": _whole(1, 2**15),
    "vocab_size": _whole(1, 2**24),
    "max_position_embeddings": _tokens,
    "original_max_position_embeddings": _tokens,
    "pretraining_tp": _whole(0, 2**16),
    # what a layer computes
    "hidden_act": _word,
    "hidden_activation": _word,
    "rms_norm_eps": _share,
    "layer_norm_eps": _share,
    "initializer_range": _share,
    "attention_bias": _flag,
    "mlp_bias": _flag,
    "attention_dropout": _share,
    "embd_pdrop": _share,
    "resid_pdrop": _share,
    "use_qk_norm": _flag,
    "attention_multiplier": _factor,
    "embedding_multiplier": _factor,
    "residual_multiplier": _factor,
    "logits_scaling": _factor,
    "logit_scale": _factor,
    "attn_logit_softcapping": _factor,
    "final_logit_softcapping": _factor,
    "query_pre_attn_scalar": _number(0, _EXTENT_MAX),
    # which layer is of which kind
    "layer_types": _list_of(_word, LAYERS_MAX),
    "sliding_window": _whole(0, _TOKENS_MAX),
    "use_sliding_window": _flag,
    "sliding_window_pattern": _whole(1, LAYERS_MAX),
    "max_window_layers": _whole(0, _EXTENT_MAX),
    "no_rope_layers": _list_of(_whole(0, 1), LAYERS_MAX),
    "no_rope_layer_interval": _whole(1, LAYERS_MAX),
    "use_bidirectional_attention": _flag,
    # positions
    "rope_theta": _number(1e-6, 1e15),
    "rope_local_base_freq": _number(1e-6, 1e15),
    "partial_rotary_factor": _share,
    "rope_parameters": _object,
    "rope_scaling": _object,
    # tokens
    "bos_token_id": _ids,
    "eos_token_id": _ids,
    "pad_token_id": _id,
}
_ROPE_FACTORS = _list_of(_number(-1e9, 1e9), _ROPE_FACTORS_MAX)
_ROPE_KEYS: Mapping[str, _Kind] = {
    "rope_type": _word,
    "type": _word,
    "rope_theta": _number(1e-6, 1e15),
    "factor": _number(0, 1e9),
    "original_max_position_embeddings": _tokens,
    "attention_factor": _factor,
    "beta_fast": _factor,
    "beta_slow": _factor,
    "low_freq_factor": _factor,
    "high_freq_factor": _factor,
    "mscale": _factor,
    "mscale_all_dim": _factor,
    "truncate": _flag,
    "partial_rotary_factor": _share,
    "short_factor": _ROPE_FACTORS,
    "long_factor": _ROPE_FACTORS,
}
_LAYER_KINDS = ("full_attention", "sliding_attention")


def _known_rope(rope: Mapping[str, Any], where: str, nested: bool) -> dict[str, Any]:
    """The understood part of a rotary embedding's parameters: one set, or one for each kind of layer."""
    known: dict[str, Any] = {}
    for key, value in rope.items():
        if nested and key in _LAYER_KINDS and isinstance(value, dict):
            known[key] = _known_rope(value, f"{where}.{key}", nested=False)
        elif key in _ROPE_KEYS:
            known[key] = _checked(f"{where}.{key}", value, _ROPE_KEYS[key])
    return known
