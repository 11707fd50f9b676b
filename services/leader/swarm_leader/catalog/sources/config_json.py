"""A checkpoint's config.json: what it says about the model, and whether that is served. Pure."""

from dataclasses import dataclass
from typing import Any

from swarm_core.decoder_config import known_keys
from swarm_core.errors import BadRequest, ServableCorrupt
from swarm_core.families import FAMILIES, SERVED_MODEL_TYPES, other_architecture
from swarm_core.json_bounds import read_json_object
from swarm_core.manifest import CONFIG_BYTES_MAX

_COUNT_MAX = 2**31 - 1
_JSON_BYTES_MAX = 16 * 2**20  # tokenizer_config.json with thousands of added tokens has 1.2 MB
_LENGTH_DEPENDENT_ROPES = {"longrope", "su"}


@dataclass(frozen=True)
class ModelConfig:
    """The numbers the leader plans with, and the document as it is served."""

    model_type: str
    layer_count: int
    hidden_size: int
    vocabulary_size: int
    attention_heads: int
    kv_heads: int
    head_dim: int
    tied_embeddings: bool
    context_tokens_max: int
    document: dict[str, Any]


def parse_config(raw: bytes, source: str = "the checkpoint") -> ModelConfig:
    """Read config.json. Only the keys a decoder is built from are kept, each within its range.

    source: what was asked to be imported, for the refusal of a file that names no family. Raises BadRequest for a model
    that is not served (family, own code, quantised already) and ServableCorrupt for one that cannot be understood.
    """
    document = read_json_object(raw, "config.json", CONFIG_BYTES_MAX)
    model_type = document.get("model_type")
    if not isinstance(model_type, str):
        raise BadRequest(f"config.json of {source} names no model_type", field="source")
    _check_served(model_type, document)
    document = known_keys(document)
    family = FAMILIES[model_type]
    hidden_size = _count(document, "hidden_size")
    heads = _count(document, "num_attention_heads")
    return ModelConfig(
        model_type=model_type,
        layer_count=_count(document, "num_hidden_layers"),
        hidden_size=hidden_size,
        vocabulary_size=_count(document, "vocab_size"),
        attention_heads=heads,
        kv_heads=_count(document, "num_key_value_heads", family.kv_heads or heads),
        head_dim=_count(document, "head_dim", family.head_dim or hidden_size // heads),
        tied_embeddings=_flag(document, "tie_word_embeddings", family.is_tied),
        context_tokens_max=_context_tokens_max(document),
        document=document,
    )


def parse_json_object(raw: bytes, name: str) -> dict[str, Any]:
    """A JSON object of at most 16 MiB. Raises ServableCorrupt naming the file."""
    return read_json_object(raw, name, _JSON_BYTES_MAX)


def drop_private(document: dict[str, Any]) -> dict[str, Any]:
    """The document without keys that start with "_"."""
    return {key: fact for key, fact in document.items() if not key.startswith("_")}


def check_no_own_code(document: dict[str, Any], name: str) -> None:
    """Raise BadRequest when a file asks for code that comes with the model; it would run on every fellow."""
    if document.get("auto_map"):
        raise BadRequest(
            f"{name} has an auto_map: the model brings its own code, which is never run. If the family is built in, "
            f"delete the auto_map entry and import again.",
            field="source",
        )


def _check_served(model_type: str, document: dict[str, Any]) -> None:
    if model_type not in FAMILIES:
        raise BadRequest(
            f"model type {model_type[:100]!r} is not served; served are {', '.join(SERVED_MODEL_TYPES)}",
            field="source",
            model_type=model_type[:100],
        )
    check_no_own_code(document, "config.json")
    other = other_architecture(document)
    if other is not None:
        raise BadRequest(
            f"the checkpoint is a {other!r}; of type {model_type}, {FAMILIES[model_type].architecture}ForCausalLM is "
            "served",
            field="source",
        )
    quantization = document.get("quantization_config")
    if quantization:
        method = quantization.get("quant_method", "?") if isinstance(quantization, dict) else "?"
        raise BadRequest(
            f"the checkpoint is already quantised ({str(method)[:40]}); import the original in 16 or 32 bits",
            field="source",
        )


def _context_tokens_max(document: dict[str, Any]) -> int:
    """The longest text the model is served with, tokens; 0 when config.json does not say.

    A rotary embedding that switches at a length (longrope) is served up to that length, as the stages do: beyond it, a
    prompt in pieces would rotate differently from one run over the whole text.
    """
    longest = _count(document, "max_position_embeddings", 0)
    rope = document.get("rope_parameters") or document.get("rope_scaling") or {}
    if not isinstance(rope, dict) or (rope.get("rope_type") or rope.get("type")) not in _LENGTH_DEPENDENT_ROPES:
        return longest
    key = "original_max_position_embeddings"
    trained = _count(rope, key, 0) or _count(document, key, 0)
    return min(longest or trained, trained) if trained else longest


def _count(document: dict[str, Any], key: str, default: int | None = None) -> int:
    """A number from 1 (or the default); null means absent."""
    number = document.get(key)
    if number is None and default is not None:
        return default
    if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= _COUNT_MAX:
        raise ServableCorrupt(f"config.json: {key} is {str(number)[:40]}, not a count")
    return number


def _flag(document: dict[str, Any], key: str, default: bool) -> bool:
    flag = document.get(key)
    if flag is None:
        return default
    if not isinstance(flag, bool):
        raise ServableCorrupt(f"config.json: {key} is {str(flag)[:40]}, neither true nor false")
    return flag
