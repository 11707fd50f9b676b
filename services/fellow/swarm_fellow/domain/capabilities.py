"""Which capabilities a fellow declares, and with which numbers. Pure: names and numbers, no protobuf."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from swarm_core.errors import BadRequest
from swarm_core.servable_parts import CODECS

WIRE_VERSION_MIN = 1
WIRE_VERSION_MAX = 1
WIRE_DTYPES = ("F32", "F16", "BF16")
STORAGE_DTYPES = ("F16", "BF16")  # under F32
STAGE_COUNT_MAX = 16
ADAPTERS_MAX = 32  # of one stage, beside its weights; it refuses more
PREFILL_WHOLE = 2**32 - 1  # in the contract, where 0 is "not said"

# Capability field -> its parameters; the field's presence is the declaration.
Declaration = Mapping[str, Mapping[str, object]]


@dataclass(frozen=True)
class Offer:
    """What this fellow has to offer.

    listens: its stages listen for direct links. frame_bytes_max: largest frame accepted, in bytes.
    prefill_chunk_tokens: prompt tokens per piece; 0 sends a prompt whole. quantizations: methods by which stages hold
    linear layers, of bitsandbytes; int4_fast: whether torchao's kernels run on its devices. splits_rows: stages measure
    at load into how few rows 4-bit products are best split. card_count: cards that stages may use.
    """

    loaded_models_max: int
    in_flight_max: int
    listens: bool
    frame_bytes_max: int
    model_types: tuple[str, ...]
    prefill_chunk_tokens: int
    quantizations: tuple[str, ...] = ()
    int4_fast: bool = False
    splits_rows: bool = False
    card_count: int = 0


def declare_capabilities(offer: Offer, withheld: Collection[str], known: Collection[str]) -> Declaration:
    """Everything this build can do, less what the operator withholds.

    known: every capability name of the contract, so that a mistyped one is not taken for withheld.
    Raises BadRequest for a withheld name that does not exist.
    """
    strangers = sorted(set(withheld) - set(known))
    if strangers:
        raise BadRequest(
            f"SWARM_FELLOW_DISABLE_CAPABILITIES names {', '.join(strangers)}; the names are {', '.join(sorted(known))}",
            field="SWARM_FELLOW_DISABLE_CAPABILITIES",
        )
    declared: dict[str, Mapping[str, object]] = {
        "wire": {
            "version_min": WIRE_VERSION_MIN,
            "version_max": WIRE_VERSION_MAX,
            "frame_bytes_max": offer.frame_bytes_max,
            "dtypes": WIRE_DTYPES,
        },
        "ping": {},
        "serve": {
            "loaded_models_max": offer.loaded_models_max,
            "model_types": offer.model_types,
            "prefill_chunk_tokens": offer.prefill_chunk_tokens or PREFILL_WHOLE,
        },
        "serve_one_stage": {},
        "serve_n_stage": {"stage_count_max": STAGE_COUNT_MAX},
        "serve_concurrent": {"in_flight_max": offer.in_flight_max},
        "serve_rewire": {},
        "serve_resume": {},
        "serve_keep": {},
        "serve_kv_budget": {},
        "serve_sampling": {},
        "serve_codec": {"codecs": CODECS},
        "serve_adapters": {"adapters_max": ADAPTERS_MAX},
        "serve_storage": {"dtypes": STORAGE_DTYPES},
        "link_keys": {},
        "maintenance": {},
        "check": {},
        "cover": {},
        "logs": {},
    }
    if offer.listens:
        declared["direct_link"] = {}
    if offer.quantizations:
        declared["serve_quantized"] = {"methods": offer.quantizations}
    if offer.quantizations and offer.splits_rows:
        declared["serve_4bit_rows"] = {}
    if offer.card_count > 1:
        declared["serve_devices"] = {}
    if offer.int4_fast:
        declared["serve_int4_fast"] = {}
    return {name: parameters for name, parameters in declared.items() if name not in withheld}
