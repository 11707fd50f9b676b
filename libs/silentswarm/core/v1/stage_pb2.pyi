from silentswarm.core.v1 import weights_pb2 as _weights_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Transport(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TRANSPORT_UNSPECIFIED: _ClassVar[Transport]
    TRANSPORT_AUTO: _ClassVar[Transport]
    TRANSPORT_TUNNEL: _ClassVar[Transport]
    TRANSPORT_P2P: _ClassVar[Transport]
    TRANSPORT_MESH: _ClassVar[Transport]

class Route(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ROUTE_UNSPECIFIED: _ClassVar[Route]
    ROUTE_DIRECT: _ClassVar[Route]
    ROUTE_RELAY: _ClassVar[Route]
    ROUTE_LOCAL: _ClassVar[Route]
TRANSPORT_UNSPECIFIED: Transport
TRANSPORT_AUTO: Transport
TRANSPORT_TUNNEL: Transport
TRANSPORT_P2P: Transport
TRANSPORT_MESH: Transport
ROUTE_UNSPECIFIED: Route
ROUTE_DIRECT: Route
ROUTE_RELAY: Route
ROUTE_LOCAL: Route

class StageSpec(_message.Message):
    __slots__ = ("model_id", "placement_id", "epoch", "stage_index", "stage_count", "layer_start", "layer_stop", "dtype", "context_tokens", "kv_tokens", "in_flight_max", "manifest_sha256", "batch_max", "measure_step_costs", "quantization", "storage_dtype", "weights_model_id", "adapters", "codec_in", "codec_out", "inner_codecs")
    MODEL_ID_FIELD_NUMBER: _ClassVar[int]
    PLACEMENT_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    STAGE_INDEX_FIELD_NUMBER: _ClassVar[int]
    STAGE_COUNT_FIELD_NUMBER: _ClassVar[int]
    LAYER_START_FIELD_NUMBER: _ClassVar[int]
    LAYER_STOP_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    KV_TOKENS_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_MAX_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_SHA256_FIELD_NUMBER: _ClassVar[int]
    BATCH_MAX_FIELD_NUMBER: _ClassVar[int]
    MEASURE_STEP_COSTS_FIELD_NUMBER: _ClassVar[int]
    QUANTIZATION_FIELD_NUMBER: _ClassVar[int]
    STORAGE_DTYPE_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_MODEL_ID_FIELD_NUMBER: _ClassVar[int]
    ADAPTERS_FIELD_NUMBER: _ClassVar[int]
    CODEC_IN_FIELD_NUMBER: _ClassVar[int]
    CODEC_OUT_FIELD_NUMBER: _ClassVar[int]
    INNER_CODECS_FIELD_NUMBER: _ClassVar[int]
    model_id: str
    placement_id: str
    epoch: int
    stage_index: int
    stage_count: int
    layer_start: int
    layer_stop: int
    dtype: str
    context_tokens: int
    kv_tokens: int
    in_flight_max: int
    manifest_sha256: str
    batch_max: int
    measure_step_costs: bool
    quantization: str
    storage_dtype: str
    weights_model_id: str
    adapters: _containers.RepeatedCompositeFieldContainer[_weights_pb2.AdapterRef]
    codec_in: str
    codec_out: str
    inner_codecs: _containers.RepeatedCompositeFieldContainer[_weights_pb2.InnerCodec]
    def __init__(self, model_id: _Optional[str] = ..., placement_id: _Optional[str] = ..., epoch: _Optional[int] = ..., stage_index: _Optional[int] = ..., stage_count: _Optional[int] = ..., layer_start: _Optional[int] = ..., layer_stop: _Optional[int] = ..., dtype: _Optional[str] = ..., context_tokens: _Optional[int] = ..., kv_tokens: _Optional[int] = ..., in_flight_max: _Optional[int] = ..., manifest_sha256: _Optional[str] = ..., batch_max: _Optional[int] = ..., measure_step_costs: _Optional[bool] = ..., quantization: _Optional[str] = ..., storage_dtype: _Optional[str] = ..., weights_model_id: _Optional[str] = ..., adapters: _Optional[_Iterable[_Union[_weights_pb2.AdapterRef, _Mapping]]] = ..., codec_in: _Optional[str] = ..., codec_out: _Optional[str] = ..., inner_codecs: _Optional[_Iterable[_Union[_weights_pb2.InnerCodec, _Mapping]]] = ...) -> None: ...

class StageStatus(_message.Message):
    __slots__ = ("spec", "route", "sessions", "kv_tokens_used", "kv_tokens_reserved", "requests", "positions", "idle_s", "memory_bytes", "frames_refused", "tokens_per_s", "first_token_s", "kv_tokens_measured", "kv_tokens_max", "waiting", "too_long", "busy_s", "loaded_s", "generated_tokens", "prompt_tokens", "failed", "links_refused", "sessions_kept", "tape_bytes", "resumed_kept", "resumed_anew", "positions_rebuilt", "link_round_trip_ms")
    SPEC_FIELD_NUMBER: _ClassVar[int]
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    KV_TOKENS_USED_FIELD_NUMBER: _ClassVar[int]
    KV_TOKENS_RESERVED_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    IDLE_S_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    FRAMES_REFUSED_FIELD_NUMBER: _ClassVar[int]
    TOKENS_PER_S_FIELD_NUMBER: _ClassVar[int]
    FIRST_TOKEN_S_FIELD_NUMBER: _ClassVar[int]
    KV_TOKENS_MEASURED_FIELD_NUMBER: _ClassVar[int]
    KV_TOKENS_MAX_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    TOO_LONG_FIELD_NUMBER: _ClassVar[int]
    BUSY_S_FIELD_NUMBER: _ClassVar[int]
    LOADED_S_FIELD_NUMBER: _ClassVar[int]
    GENERATED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    LINKS_REFUSED_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_KEPT_FIELD_NUMBER: _ClassVar[int]
    TAPE_BYTES_FIELD_NUMBER: _ClassVar[int]
    RESUMED_KEPT_FIELD_NUMBER: _ClassVar[int]
    RESUMED_ANEW_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_REBUILT_FIELD_NUMBER: _ClassVar[int]
    LINK_ROUND_TRIP_MS_FIELD_NUMBER: _ClassVar[int]
    spec: StageSpec
    route: Route
    sessions: int
    kv_tokens_used: int
    kv_tokens_reserved: int
    requests: int
    positions: int
    idle_s: float
    memory_bytes: int
    frames_refused: int
    tokens_per_s: float
    first_token_s: float
    kv_tokens_measured: int
    kv_tokens_max: int
    waiting: int
    too_long: int
    busy_s: float
    loaded_s: float
    generated_tokens: int
    prompt_tokens: int
    failed: int
    links_refused: int
    sessions_kept: int
    tape_bytes: int
    resumed_kept: int
    resumed_anew: int
    positions_rebuilt: int
    link_round_trip_ms: float
    def __init__(self, spec: _Optional[_Union[StageSpec, _Mapping]] = ..., route: _Optional[_Union[Route, str]] = ..., sessions: _Optional[int] = ..., kv_tokens_used: _Optional[int] = ..., kv_tokens_reserved: _Optional[int] = ..., requests: _Optional[int] = ..., positions: _Optional[int] = ..., idle_s: _Optional[float] = ..., memory_bytes: _Optional[int] = ..., frames_refused: _Optional[int] = ..., tokens_per_s: _Optional[float] = ..., first_token_s: _Optional[float] = ..., kv_tokens_measured: _Optional[int] = ..., kv_tokens_max: _Optional[int] = ..., waiting: _Optional[int] = ..., too_long: _Optional[int] = ..., busy_s: _Optional[float] = ..., loaded_s: _Optional[float] = ..., generated_tokens: _Optional[int] = ..., prompt_tokens: _Optional[int] = ..., failed: _Optional[int] = ..., links_refused: _Optional[int] = ..., sessions_kept: _Optional[int] = ..., tape_bytes: _Optional[int] = ..., resumed_kept: _Optional[int] = ..., resumed_anew: _Optional[int] = ..., positions_rebuilt: _Optional[int] = ..., link_round_trip_ms: _Optional[float] = ...) -> None: ...
