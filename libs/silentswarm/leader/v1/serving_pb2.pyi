from google.api import annotations_pb2 as _annotations_pb2
from silentswarm.core.v1 import access_pb2 as _access_pb2
from silentswarm.core.v1 import stage_pb2 as _stage_pb2
from silentswarm.core.v1 import weights_pb2 as _weights_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PlacementState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PLACEMENT_STATE_UNSPECIFIED: _ClassVar[PlacementState]
    PLACEMENT_STATE_PLANNED: _ClassVar[PlacementState]
    PLACEMENT_STATE_LOADING: _ClassVar[PlacementState]
    PLACEMENT_STATE_WIRING: _ClassVar[PlacementState]
    PLACEMENT_STATE_READY: _ClassVar[PlacementState]
    PLACEMENT_STATE_IDLE: _ClassVar[PlacementState]
    PLACEMENT_STATE_FAILED: _ClassVar[PlacementState]
    PLACEMENT_STATE_UNLOADED: _ClassVar[PlacementState]
    PLACEMENT_STATE_RECOVERING: _ClassVar[PlacementState]
PLACEMENT_STATE_UNSPECIFIED: PlacementState
PLACEMENT_STATE_PLANNED: PlacementState
PLACEMENT_STATE_LOADING: PlacementState
PLACEMENT_STATE_WIRING: PlacementState
PLACEMENT_STATE_READY: PlacementState
PLACEMENT_STATE_IDLE: PlacementState
PLACEMENT_STATE_FAILED: PlacementState
PLACEMENT_STATE_UNLOADED: PlacementState
PLACEMENT_STATE_RECOVERING: PlacementState

class LoadModelRequest(_message.Message):
    __slots__ = ("model_id", "num_stages", "fellow_ids", "transport", "context_tokens", "quantization", "adapters", "codec")
    MODEL_ID_FIELD_NUMBER: _ClassVar[int]
    NUM_STAGES_FIELD_NUMBER: _ClassVar[int]
    FELLOW_IDS_FIELD_NUMBER: _ClassVar[int]
    TRANSPORT_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    QUANTIZATION_FIELD_NUMBER: _ClassVar[int]
    ADAPTERS_FIELD_NUMBER: _ClassVar[int]
    CODEC_FIELD_NUMBER: _ClassVar[int]
    model_id: str
    num_stages: int
    fellow_ids: _containers.RepeatedScalarFieldContainer[str]
    transport: _stage_pb2.Transport
    context_tokens: int
    quantization: _weights_pb2.Quantization
    adapters: _containers.RepeatedScalarFieldContainer[str]
    codec: str
    def __init__(self, model_id: _Optional[str] = ..., num_stages: _Optional[int] = ..., fellow_ids: _Optional[_Iterable[str]] = ..., transport: _Optional[_Union[_stage_pb2.Transport, str]] = ..., context_tokens: _Optional[int] = ..., quantization: _Optional[_Union[_weights_pb2.Quantization, _Mapping]] = ..., adapters: _Optional[_Iterable[str]] = ..., codec: _Optional[str] = ...) -> None: ...

class UnloadModelRequest(_message.Message):
    __slots__ = ("model_id",)
    MODEL_ID_FIELD_NUMBER: _ClassVar[int]
    model_id: str
    def __init__(self, model_id: _Optional[str] = ...) -> None: ...

class GetModelStatusRequest(_message.Message):
    __slots__ = ("model_id",)
    MODEL_ID_FIELD_NUMBER: _ClassVar[int]
    model_id: str
    def __init__(self, model_id: _Optional[str] = ...) -> None: ...

class GetPerformanceRequest(_message.Message):
    __slots__ = ("model_id",)
    MODEL_ID_FIELD_NUMBER: _ClassVar[int]
    model_id: str
    def __init__(self, model_id: _Optional[str] = ...) -> None: ...

class Spread(_message.Message):
    __slots__ = ("p50_ms", "p95_ms", "p99_ms")
    P50_MS_FIELD_NUMBER: _ClassVar[int]
    P95_MS_FIELD_NUMBER: _ClassVar[int]
    P99_MS_FIELD_NUMBER: _ClassVar[int]
    p50_ms: float
    p95_ms: float
    p99_ms: float
    def __init__(self, p50_ms: _Optional[float] = ..., p95_ms: _Optional[float] = ..., p99_ms: _Optional[float] = ...) -> None: ...

class ModelPerformance(_message.Message):
    __slots__ = ("model_id", "window_s", "completed", "failed", "too_long", "cancelled", "prompt_tokens", "generated_tokens", "tokens_per_s", "running", "waiting", "first_token", "inter_token", "split", "stages", "turned_away")
    MODEL_ID_FIELD_NUMBER: _ClassVar[int]
    WINDOW_S_FIELD_NUMBER: _ClassVar[int]
    COMPLETED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    TOO_LONG_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    GENERATED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_PER_S_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    FIRST_TOKEN_FIELD_NUMBER: _ClassVar[int]
    INTER_TOKEN_FIELD_NUMBER: _ClassVar[int]
    SPLIT_FIELD_NUMBER: _ClassVar[int]
    STAGES_FIELD_NUMBER: _ClassVar[int]
    TURNED_AWAY_FIELD_NUMBER: _ClassVar[int]
    model_id: str
    window_s: float
    completed: int
    failed: int
    too_long: int
    cancelled: int
    prompt_tokens: int
    generated_tokens: int
    tokens_per_s: float
    running: int
    waiting: int
    first_token: Spread
    inter_token: Spread
    split: TimeSplit
    stages: _containers.RepeatedCompositeFieldContainer[StagePerformance]
    turned_away: int
    def __init__(self, model_id: _Optional[str] = ..., window_s: _Optional[float] = ..., completed: _Optional[int] = ..., failed: _Optional[int] = ..., too_long: _Optional[int] = ..., cancelled: _Optional[int] = ..., prompt_tokens: _Optional[int] = ..., generated_tokens: _Optional[int] = ..., tokens_per_s: _Optional[float] = ..., running: _Optional[int] = ..., waiting: _Optional[int] = ..., first_token: _Optional[_Union[Spread, _Mapping]] = ..., inter_token: _Optional[_Union[Spread, _Mapping]] = ..., split: _Optional[_Union[TimeSplit, _Mapping]] = ..., stages: _Optional[_Iterable[_Union[StagePerformance, _Mapping]]] = ..., turned_away: _Optional[int] = ...) -> None: ...

class TimeSplit(_message.Message):
    __slots__ = ("queue_ms", "prefill_ms", "stage_ms", "wait_ms", "link_ms", "sample_ms", "detokenize_ms", "bytes_per_token", "batch_mean")
    QUEUE_MS_FIELD_NUMBER: _ClassVar[int]
    PREFILL_MS_FIELD_NUMBER: _ClassVar[int]
    STAGE_MS_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    LINK_MS_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_MS_FIELD_NUMBER: _ClassVar[int]
    DETOKENIZE_MS_FIELD_NUMBER: _ClassVar[int]
    BYTES_PER_TOKEN_FIELD_NUMBER: _ClassVar[int]
    BATCH_MEAN_FIELD_NUMBER: _ClassVar[int]
    queue_ms: float
    prefill_ms: float
    stage_ms: _containers.RepeatedScalarFieldContainer[float]
    wait_ms: float
    link_ms: float
    sample_ms: float
    detokenize_ms: float
    bytes_per_token: float
    batch_mean: float
    def __init__(self, queue_ms: _Optional[float] = ..., prefill_ms: _Optional[float] = ..., stage_ms: _Optional[_Iterable[float]] = ..., wait_ms: _Optional[float] = ..., link_ms: _Optional[float] = ..., sample_ms: _Optional[float] = ..., detokenize_ms: _Optional[float] = ..., bytes_per_token: _Optional[float] = ..., batch_mean: _Optional[float] = ...) -> None: ...

class StagePerformance(_message.Message):
    __slots__ = ("stage_index", "fellow_id", "fellow_name", "devices", "layer_start", "layer_stop", "route", "busy_share", "kv_tokens_used", "kv_tokens_max")
    STAGE_INDEX_FIELD_NUMBER: _ClassVar[int]
    FELLOW_ID_FIELD_NUMBER: _ClassVar[int]
    FELLOW_NAME_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    LAYER_START_FIELD_NUMBER: _ClassVar[int]
    LAYER_STOP_FIELD_NUMBER: _ClassVar[int]
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    BUSY_SHARE_FIELD_NUMBER: _ClassVar[int]
    KV_TOKENS_USED_FIELD_NUMBER: _ClassVar[int]
    KV_TOKENS_MAX_FIELD_NUMBER: _ClassVar[int]
    stage_index: int
    fellow_id: str
    fellow_name: str
    devices: _containers.RepeatedScalarFieldContainer[str]
    layer_start: int
    layer_stop: int
    route: _stage_pb2.Route
    busy_share: float
    kv_tokens_used: int
    kv_tokens_max: int
    def __init__(self, stage_index: _Optional[int] = ..., fellow_id: _Optional[str] = ..., fellow_name: _Optional[str] = ..., devices: _Optional[_Iterable[str]] = ..., layer_start: _Optional[int] = ..., layer_stop: _Optional[int] = ..., route: _Optional[_Union[_stage_pb2.Route, str]] = ..., busy_share: _Optional[float] = ..., kv_tokens_used: _Optional[int] = ..., kv_tokens_max: _Optional[int] = ...) -> None: ...

class WatchModelRequest(_message.Message):
    __slots__ = ("model_id",)
    MODEL_ID_FIELD_NUMBER: _ClassVar[int]
    model_id: str
    def __init__(self, model_id: _Optional[str] = ...) -> None: ...

class ModelStatus(_message.Message):
    __slots__ = ("model_id", "state", "reason", "placement_id", "epoch", "stages", "transport", "in_flight_max", "context_tokens", "running", "waiting", "probe_lap_ms", "notes", "batch_max", "quantization", "adapters", "predicted_tokens_per_s", "dtype", "covers", "left_out", "predicted_first_token_ms", "measured_tokens_per_s", "measured_first_token_ms", "measured_link_ms")
    MODEL_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    PLACEMENT_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    STAGES_FIELD_NUMBER: _ClassVar[int]
    TRANSPORT_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_MAX_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    PROBE_LAP_MS_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    BATCH_MAX_FIELD_NUMBER: _ClassVar[int]
    QUANTIZATION_FIELD_NUMBER: _ClassVar[int]
    ADAPTERS_FIELD_NUMBER: _ClassVar[int]
    PREDICTED_TOKENS_PER_S_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    COVERS_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    PREDICTED_FIRST_TOKEN_MS_FIELD_NUMBER: _ClassVar[int]
    MEASURED_TOKENS_PER_S_FIELD_NUMBER: _ClassVar[int]
    MEASURED_FIRST_TOKEN_MS_FIELD_NUMBER: _ClassVar[int]
    MEASURED_LINK_MS_FIELD_NUMBER: _ClassVar[int]
    model_id: str
    state: PlacementState
    reason: str
    placement_id: str
    epoch: int
    stages: _containers.RepeatedCompositeFieldContainer[StagePlacement]
    transport: _stage_pb2.Transport
    in_flight_max: int
    context_tokens: int
    running: int
    waiting: int
    probe_lap_ms: float
    notes: _containers.RepeatedScalarFieldContainer[str]
    batch_max: int
    quantization: str
    adapters: _containers.RepeatedScalarFieldContainer[str]
    predicted_tokens_per_s: float
    dtype: str
    covers: _containers.RepeatedCompositeFieldContainer[CoverPlacement]
    left_out: _containers.RepeatedCompositeFieldContainer[LeftOut]
    predicted_first_token_ms: float
    measured_tokens_per_s: float
    measured_first_token_ms: float
    measured_link_ms: float
    def __init__(self, model_id: _Optional[str] = ..., state: _Optional[_Union[PlacementState, str]] = ..., reason: _Optional[str] = ..., placement_id: _Optional[str] = ..., epoch: _Optional[int] = ..., stages: _Optional[_Iterable[_Union[StagePlacement, _Mapping]]] = ..., transport: _Optional[_Union[_stage_pb2.Transport, str]] = ..., in_flight_max: _Optional[int] = ..., context_tokens: _Optional[int] = ..., running: _Optional[int] = ..., waiting: _Optional[int] = ..., probe_lap_ms: _Optional[float] = ..., notes: _Optional[_Iterable[str]] = ..., batch_max: _Optional[int] = ..., quantization: _Optional[str] = ..., adapters: _Optional[_Iterable[str]] = ..., predicted_tokens_per_s: _Optional[float] = ..., dtype: _Optional[str] = ..., covers: _Optional[_Iterable[_Union[CoverPlacement, _Mapping]]] = ..., left_out: _Optional[_Iterable[_Union[LeftOut, _Mapping]]] = ..., predicted_first_token_ms: _Optional[float] = ..., measured_tokens_per_s: _Optional[float] = ..., measured_first_token_ms: _Optional[float] = ..., measured_link_ms: _Optional[float] = ...) -> None: ...

class CoverPlacement(_message.Message):
    __slots__ = ("stage_index", "fellow_id", "fellow_name", "kind", "weight_bytes")
    STAGE_INDEX_FIELD_NUMBER: _ClassVar[int]
    FELLOW_ID_FIELD_NUMBER: _ClassVar[int]
    FELLOW_NAME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_BYTES_FIELD_NUMBER: _ClassVar[int]
    stage_index: int
    fellow_id: str
    fellow_name: str
    kind: str
    weight_bytes: int
    def __init__(self, stage_index: _Optional[int] = ..., fellow_id: _Optional[str] = ..., fellow_name: _Optional[str] = ..., kind: _Optional[str] = ..., weight_bytes: _Optional[int] = ...) -> None: ...

class LeftOut(_message.Message):
    __slots__ = ("fellow_id", "fellow_name", "reason")
    FELLOW_ID_FIELD_NUMBER: _ClassVar[int]
    FELLOW_NAME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    fellow_id: str
    fellow_name: str
    reason: str
    def __init__(self, fellow_id: _Optional[str] = ..., fellow_name: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class StagePlacement(_message.Message):
    __slots__ = ("stage_index", "fellow_id", "fellow_name", "layer_start", "layer_stop", "weight_bytes", "kv_bytes", "working_bytes", "free_bytes", "route", "state", "step", "done", "total", "live", "fetched_bytes", "devices", "weight_bytes_measured", "quantization", "codec_out", "predicted_ms", "predicted_link_ms", "measured_ms", "measured_link_ms")
    STAGE_INDEX_FIELD_NUMBER: _ClassVar[int]
    FELLOW_ID_FIELD_NUMBER: _ClassVar[int]
    FELLOW_NAME_FIELD_NUMBER: _ClassVar[int]
    LAYER_START_FIELD_NUMBER: _ClassVar[int]
    LAYER_STOP_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_BYTES_FIELD_NUMBER: _ClassVar[int]
    KV_BYTES_FIELD_NUMBER: _ClassVar[int]
    WORKING_BYTES_FIELD_NUMBER: _ClassVar[int]
    FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    LIVE_FIELD_NUMBER: _ClassVar[int]
    FETCHED_BYTES_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_BYTES_MEASURED_FIELD_NUMBER: _ClassVar[int]
    QUANTIZATION_FIELD_NUMBER: _ClassVar[int]
    CODEC_OUT_FIELD_NUMBER: _ClassVar[int]
    PREDICTED_MS_FIELD_NUMBER: _ClassVar[int]
    PREDICTED_LINK_MS_FIELD_NUMBER: _ClassVar[int]
    MEASURED_MS_FIELD_NUMBER: _ClassVar[int]
    MEASURED_LINK_MS_FIELD_NUMBER: _ClassVar[int]
    stage_index: int
    fellow_id: str
    fellow_name: str
    layer_start: int
    layer_stop: int
    weight_bytes: int
    kv_bytes: int
    working_bytes: int
    free_bytes: int
    route: _stage_pb2.Route
    state: str
    step: str
    done: int
    total: int
    live: _stage_pb2.StageStatus
    fetched_bytes: int
    devices: _containers.RepeatedCompositeFieldContainer[_weights_pb2.DeviceRun]
    weight_bytes_measured: int
    quantization: str
    codec_out: str
    predicted_ms: float
    predicted_link_ms: float
    measured_ms: float
    measured_link_ms: float
    def __init__(self, stage_index: _Optional[int] = ..., fellow_id: _Optional[str] = ..., fellow_name: _Optional[str] = ..., layer_start: _Optional[int] = ..., layer_stop: _Optional[int] = ..., weight_bytes: _Optional[int] = ..., kv_bytes: _Optional[int] = ..., working_bytes: _Optional[int] = ..., free_bytes: _Optional[int] = ..., route: _Optional[_Union[_stage_pb2.Route, str]] = ..., state: _Optional[str] = ..., step: _Optional[str] = ..., done: _Optional[int] = ..., total: _Optional[int] = ..., live: _Optional[_Union[_stage_pb2.StageStatus, _Mapping]] = ..., fetched_bytes: _Optional[int] = ..., devices: _Optional[_Iterable[_Union[_weights_pb2.DeviceRun, _Mapping]]] = ..., weight_bytes_measured: _Optional[int] = ..., quantization: _Optional[str] = ..., codec_out: _Optional[str] = ..., predicted_ms: _Optional[float] = ..., predicted_link_ms: _Optional[float] = ..., measured_ms: _Optional[float] = ..., measured_link_ms: _Optional[float] = ...) -> None: ...

class ListServingRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListServingResponse(_message.Message):
    __slots__ = ("models",)
    MODELS_FIELD_NUMBER: _ClassVar[int]
    models: _containers.RepeatedCompositeFieldContainer[ModelStatus]
    def __init__(self, models: _Optional[_Iterable[_Union[ModelStatus, _Mapping]]] = ...) -> None: ...
