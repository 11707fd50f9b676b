"""core.v1.Capabilities as the leader's own facts. Unknown fields are ignored; a parameter of 0 does not say."""

from silentswarm.core.v1 import capabilities_pb2
from swarm_core.quantization import INT4_FAST

from swarm_leader.domain.capabilities import UNLIMITED, Capabilities, Serve, WireRange


def capabilities_from_proto(declared: capabilities_pb2.Capabilities) -> Capabilities:
    """What a fellow can do; presence of a field declares it."""
    wire = declared.wire
    has = declared.HasField
    return Capabilities(
        wire=WireRange(wire.version_min, wire.version_max, tuple(wire.dtypes)) if has("wire") else None,
        ping=has("ping"),
        serve=_serve(declared.serve) if has("serve") else None,
        serve_one_stage=has("serve_one_stage"),
        stage_count_max=_limit(declared.serve_n_stage.stage_count_max) if has("serve_n_stage") else None,
        in_flight_max=_limit(declared.serve_concurrent.in_flight_max) if has("serve_concurrent") else None,
        direct_link=has("direct_link"),
        serve_rewire=has("serve_rewire"),
        serve_kv_budget=has("serve_kv_budget"),
        serve_4bit_rows=has("serve_4bit_rows"),
        serve_sampling=has("serve_sampling"),
        link_keys=has("link_keys"),
        quantizations=_quantizations(declared),
        codecs=tuple(declared.serve_codec.codecs),
        adapters_max=_limit(declared.serve_adapters.adapters_max) if has("serve_adapters") else 0,
        serve_devices=has("serve_devices"),
        storage_dtypes=tuple(declared.serve_storage.dtypes),
        maintenance=has("maintenance"),
        serve_resume=has("serve_resume"),
        serve_keep=has("serve_keep"),
        check=has("check"),
        cover=has("cover"),
        logs=has("logs"),
    )


def _quantizations(declared: capabilities_pb2.Capabilities) -> tuple[str, ...]:
    """The methods a fellow has; int4-fast is a capability of its own."""
    fast = (INT4_FAST,) if declared.HasField("serve_int4_fast") else ()
    return (*(method for method in declared.serve_quantized.methods if method != INT4_FAST), *fast)


def _serve(declared: capabilities_pb2.Serve) -> Serve:
    return Serve(declared.loaded_models_max or 1, tuple(declared.model_types), declared.prefill_chunk_tokens)


def _limit(parameter: int) -> int:
    return parameter or UNLIMITED
