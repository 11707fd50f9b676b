"""Records to store, with every field set to something that is not its default."""

from dataclasses import replace
from typing import Any

from swarm_leader.domain.holding import AdapterRef, AdapterUse, DeviceRun, InnerCodec
from swarm_leader.domain.incidents import IncidentKind, IncidentRecord, IncidentStep, Outcome
from swarm_leader.domain.records import (
    ApiTokenRecord,
    FellowRecord,
    JoinTokenRecord,
    PlacementRecord,
    PlacementState,
    Route,
    StageRecord,
    TokenUsage,
    Transport,
)


def fellow(number: int = 1, **changes: Any) -> FellowRecord:
    """A machine; `changes` replace fields."""
    facts: dict[str, Any] = {
        "fellow_id": f"f{number}",
        "identity": f"identity-{number}",
        "name": f"Rechner Nr. {number} \N{DESKTOP COMPUTER}",
        "version": "0.1.0",
        "hardware": b"\x00\xff\x01hardware",
        "capabilities": b"\x0a\x00",
        "joined_s": 1_760_000_000.125,
        "credential_sha256": f"{number:064x}",
        "credential_confirmed": True,
        "joined_by": "join-1",
        "draining": True,
    }
    return FellowRecord(**facts | changes)


def stage(index: int = 0, **changes: Any) -> StageRecord:
    """A stage with numbers beyond 32 bits."""
    facts: dict[str, Any] = {
        "stage_index": index,
        "fellow_id": f"f{index + 1}",
        "layer_start": index * 15,
        "layer_stop": index * 15 + 15,
        "weight_bytes": 70 * 2**30,
        "kv_bytes": 5 * 2**30,
        "working_bytes": 2**28,
        "free_bytes": None if index else 141 * 2**30,
        "route": Route.RELAY,
        "state": "loading",
        "devices": (
            DeviceRun(0, index * 15, index * 15 + 7, 30 * 2**30, 2**31, 2**28, 80 * 2**30),
            DeviceRun(3, index * 15 + 7, index * 15 + 15, 40 * 2**30, 2**31, 2**28, None),
        ),
        "codec_in": "int4",
        "codec_out": "int8",
        "inner_codecs": (InnerCodec(index * 15 + 3, "int8"),),
        "quantization": "nf4",
        "weight_bytes_measured": 69 * 2**30,
        "predicted_ms": 12.5,
    }
    return StageRecord(**facts | changes)


def before_weights(record: PlacementRecord) -> PlacementRecord:
    """A placement as a release knew it that said nothing of how weights are held."""
    unsaid: dict[str, Any] = {
        "devices": (),
        "codec_in": "",
        "codec_out": "",
        "inner_codecs": (),
        "quantization": "",
        "weight_bytes_measured": None,
        "predicted_ms": None,
    }
    return replace(
        record,
        stages=tuple(replace(one, **unsaid) for one in record.stages),
        quantization="none",
        quantization_asked="",
        storage_dtype="",
        weights_model_id="",
        adapters=(),
        codec="",
        predicted_tokens_per_s=None,
    )


def placement(model_id: str = "org/model", epoch: int = 1, **changes: Any) -> PlacementRecord:
    """A placement over two stages; its id follows from model and epoch."""
    facts: dict[str, Any] = {
        "placement_id": f"p-{model_id}-{epoch}",
        "model_id": model_id,
        "manifest_sha256": "ab" * 32,
        "epoch": epoch,
        "state": PlacementState.LOADING,
        "reason": "",
        "transport": Transport.AUTO,
        "dtype": "bfloat16",
        "context_tokens": 4096,
        "kv_tokens": 16384,
        "in_flight_max": 8,
        "created_s": 1_760_000_000.5 + epoch,
        "stages": (stage(0), stage(1)),
        "batch_max": 4,
        "notes": ("one fellow declares no fp8", "zwei: \u00fc"),
        "quantization": "int4-fast",
        "quantization_asked": "int8",
        "storage_dtype": "F16",
        "weights_model_id": "org/base",
        "adapters": (
            AdapterRef("org/pirate", "cd" * 32, AdapterUse.CHOSEN),
            AdapterRef("org/poet", "ef" * 32, AdapterUse.MERGED),
        ),
        "codec": "none",
        "predicted_tokens_per_s": 41.75,
    }
    return PlacementRecord(**facts | changes)


def api_token(number: int = 1, **changes: Any) -> ApiTokenRecord:
    """A token with counts beyond 32 bits."""
    facts: dict[str, Any] = {
        "token_id": f"tok-{number}",
        "digest": f"{number:064x}",
        "label": f"Nr. {number} \N{KEY}",
        "scopes": ("read", "operate"),
        "created_s": 1_760_000_000 + number,
        "expires_s": 1_770_000_000,
        "revoked_s": 1_765_000_000,
        "last_used_s": 1_764_000_000,
        "by_leader": True,
        "usage": TokenUsage(requests=2**33, prompt_tokens=2**40, completion_tokens=2**41, cancelled=3),
    }
    return ApiTokenRecord(**facts | changes)


def join_token(number: int = 1, **changes: Any) -> JoinTokenRecord:
    """A join token that lets three more machines in."""
    facts: dict[str, Any] = {
        "join_token_id": f"join-{number}",
        "digest": f"{number:064x}",
        "label": "garage",
        "created_s": 1_760_000_000 + number,
        "expires_s": 1_770_000_000,
        "uses_left": 3,
        "used": 1,
    }
    return JoinTokenRecord(**facts | changes)


def incident(number: int = 1, **changes: Any) -> IncidentRecord:
    """An incident that is over; a later number was opened later."""
    facts: dict[str, Any] = {
        "incident_id": f"incident-{number:04d}",
        "placement_id": "p-org/model-1",
        "model_id": "org/model",
        "epoch": 2**33,
        "kind": IncidentKind.LOST,
        "opened_s": 1_760_000_000.25 + number,
        "stages": (1, 0),
        "lost": ("K\u00fcche", "attic"),
        "replacements": ("garage", ""),
        "step": "closed",
        "log": (IncidentStep(1_760_000_001.5, "stage 1 goes to garage"),),
        "closed_s": 1_760_000_009.125,
        "outcome": Outcome.MOVED,
        "detected_ms": 1250.5,
        "recovered_ms": None,
    }
    return IncidentRecord(**facts | changes)
