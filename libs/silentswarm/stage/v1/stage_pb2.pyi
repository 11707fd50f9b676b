from silentswarm.core.v1 import access_pb2 as _access_pb2
from silentswarm.core.v1 import generation_pb2 as _generation_pb2
from silentswarm.core.v1 import link_pb2 as _link_pb2
from silentswarm.core.v1 import stage_pb2 as _stage_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class LoadRequest(_message.Message):
    __slots__ = ("spec", "model_dir", "tensor_files", "device", "threads", "prefill_chunk_tokens", "ring_bind_host", "attention", "tls_dir", "adapters", "device_layers", "lora", "fourbit_rows", "fourbit_float32", "tape_bytes_max")
    class TensorFilesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SPEC_FIELD_NUMBER: _ClassVar[int]
    MODEL_DIR_FIELD_NUMBER: _ClassVar[int]
    TENSOR_FILES_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    THREADS_FIELD_NUMBER: _ClassVar[int]
    PREFILL_CHUNK_TOKENS_FIELD_NUMBER: _ClassVar[int]
    RING_BIND_HOST_FIELD_NUMBER: _ClassVar[int]
    ATTENTION_FIELD_NUMBER: _ClassVar[int]
    TLS_DIR_FIELD_NUMBER: _ClassVar[int]
    ADAPTERS_FIELD_NUMBER: _ClassVar[int]
    DEVICE_LAYERS_FIELD_NUMBER: _ClassVar[int]
    LORA_FIELD_NUMBER: _ClassVar[int]
    FOURBIT_ROWS_FIELD_NUMBER: _ClassVar[int]
    FOURBIT_FLOAT32_FIELD_NUMBER: _ClassVar[int]
    TAPE_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    spec: _stage_pb2.StageSpec
    model_dir: str
    tensor_files: _containers.ScalarMap[str, str]
    device: str
    threads: int
    prefill_chunk_tokens: int
    ring_bind_host: str
    attention: str
    tls_dir: str
    adapters: _containers.RepeatedCompositeFieldContainer[AdapterFiles]
    device_layers: _containers.RepeatedCompositeFieldContainer[DeviceLayers]
    lora: str
    fourbit_rows: str
    fourbit_float32: str
    tape_bytes_max: int
    def __init__(self, spec: _Optional[_Union[_stage_pb2.StageSpec, _Mapping]] = ..., model_dir: _Optional[str] = ..., tensor_files: _Optional[_Mapping[str, str]] = ..., device: _Optional[str] = ..., threads: _Optional[int] = ..., prefill_chunk_tokens: _Optional[int] = ..., ring_bind_host: _Optional[str] = ..., attention: _Optional[str] = ..., tls_dir: _Optional[str] = ..., adapters: _Optional[_Iterable[_Union[AdapterFiles, _Mapping]]] = ..., device_layers: _Optional[_Iterable[_Union[DeviceLayers, _Mapping]]] = ..., lora: _Optional[str] = ..., fourbit_rows: _Optional[str] = ..., fourbit_float32: _Optional[str] = ..., tape_bytes_max: _Optional[int] = ...) -> None: ...

class AdapterFiles(_message.Message):
    __slots__ = ("model_id", "model_dir", "tensor_files")
    class TensorFilesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    MODEL_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_DIR_FIELD_NUMBER: _ClassVar[int]
    TENSOR_FILES_FIELD_NUMBER: _ClassVar[int]
    model_id: str
    model_dir: str
    tensor_files: _containers.ScalarMap[str, str]
    def __init__(self, model_id: _Optional[str] = ..., model_dir: _Optional[str] = ..., tensor_files: _Optional[_Mapping[str, str]] = ...) -> None: ...

class DeviceLayers(_message.Message):
    __slots__ = ("device", "layer_start", "layer_stop")
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    LAYER_START_FIELD_NUMBER: _ClassVar[int]
    LAYER_STOP_FIELD_NUMBER: _ClassVar[int]
    device: str
    layer_start: int
    layer_stop: int
    def __init__(self, device: _Optional[str] = ..., layer_start: _Optional[int] = ..., layer_stop: _Optional[int] = ...) -> None: ...

class LoadEvent(_message.Message):
    __slots__ = ("progress", "loaded")
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    LOADED_FIELD_NUMBER: _ClassVar[int]
    progress: LoadProgress
    loaded: Loaded
    def __init__(self, progress: _Optional[_Union[LoadProgress, _Mapping]] = ..., loaded: _Optional[_Union[Loaded, _Mapping]] = ...) -> None: ...

class LoadProgress(_message.Message):
    __slots__ = ("step", "done", "total")
    STEP_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    step: str
    done: int
    total: int
    def __init__(self, step: _Optional[str] = ..., done: _Optional[int] = ..., total: _Optional[int] = ...) -> None: ...

class Loaded(_message.Message):
    __slots__ = ("ring_port", "weight_bytes", "kv_bytes_per_token", "kv_tokens_measured", "memory_peak_bytes", "quantization", "notes", "device_weight_bytes")
    RING_PORT_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_BYTES_FIELD_NUMBER: _ClassVar[int]
    KV_BYTES_PER_TOKEN_FIELD_NUMBER: _ClassVar[int]
    KV_TOKENS_MEASURED_FIELD_NUMBER: _ClassVar[int]
    MEMORY_PEAK_BYTES_FIELD_NUMBER: _ClassVar[int]
    QUANTIZATION_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    DEVICE_WEIGHT_BYTES_FIELD_NUMBER: _ClassVar[int]
    ring_port: int
    weight_bytes: int
    kv_bytes_per_token: int
    kv_tokens_measured: int
    memory_peak_bytes: int
    quantization: str
    notes: _containers.RepeatedScalarFieldContainer[str]
    device_weight_bytes: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, ring_port: _Optional[int] = ..., weight_bytes: _Optional[int] = ..., kv_bytes_per_token: _Optional[int] = ..., kv_tokens_measured: _Optional[int] = ..., memory_peak_bytes: _Optional[int] = ..., quantization: _Optional[str] = ..., notes: _Optional[_Iterable[str]] = ..., device_weight_bytes: _Optional[_Iterable[int]] = ...) -> None: ...

class WireRequest(_message.Message):
    __slots__ = ("epoch", "route", "next_addresses", "relay_address", "previous_route", "timeout_ms", "kv_tokens", "keys", "relay_trust", "keep_sessions", "fresh_stages")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    NEXT_ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    RELAY_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_ROUTE_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    KV_TOKENS_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    RELAY_TRUST_FIELD_NUMBER: _ClassVar[int]
    KEEP_SESSIONS_FIELD_NUMBER: _ClassVar[int]
    FRESH_STAGES_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    route: _stage_pb2.Route
    next_addresses: _containers.RepeatedScalarFieldContainer[str]
    relay_address: str
    previous_route: _stage_pb2.Route
    timeout_ms: int
    kv_tokens: int
    keys: _link_pb2.RingKeys
    relay_trust: _link_pb2.PeerTrust
    keep_sessions: bool
    fresh_stages: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, epoch: _Optional[int] = ..., route: _Optional[_Union[_stage_pb2.Route, str]] = ..., next_addresses: _Optional[_Iterable[str]] = ..., relay_address: _Optional[str] = ..., previous_route: _Optional[_Union[_stage_pb2.Route, str]] = ..., timeout_ms: _Optional[int] = ..., kv_tokens: _Optional[int] = ..., keys: _Optional[_Union[_link_pb2.RingKeys, _Mapping]] = ..., relay_trust: _Optional[_Union[_link_pb2.PeerTrust, _Mapping]] = ..., keep_sessions: _Optional[bool] = ..., fresh_stages: _Optional[_Iterable[int]] = ...) -> None: ...

class WireResponse(_message.Message):
    __slots__ = ("connected", "failure", "address")
    CONNECTED_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    connected: bool
    failure: str
    address: str
    def __init__(self, connected: _Optional[bool] = ..., failure: _Optional[str] = ..., address: _Optional[str] = ...) -> None: ...

class ProbeRequest(_message.Message):
    __slots__ = ("timeout_ms",)
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    timeout_ms: int
    def __init__(self, timeout_ms: _Optional[int] = ...) -> None: ...

class ProbeResponse(_message.Message):
    __slots__ = ("lap_ms", "stage_ms")
    LAP_MS_FIELD_NUMBER: _ClassVar[int]
    STAGE_MS_FIELD_NUMBER: _ClassVar[int]
    lap_ms: float
    stage_ms: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, lap_ms: _Optional[float] = ..., stage_ms: _Optional[_Iterable[float]] = ...) -> None: ...

class GenerateRequest(_message.Message):
    __slots__ = ("request_id", "generation")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    generation: _generation_pb2.Generation
    def __init__(self, request_id: _Optional[str] = ..., generation: _Optional[_Union[_generation_pb2.Generation, _Mapping]] = ...) -> None: ...

class GetStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WatchFaultsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Fault(_message.Message):
    __slots__ = ("kind", "epoch", "message", "peer_stage")
    KIND_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    PEER_STAGE_FIELD_NUMBER: _ClassVar[int]
    kind: str
    epoch: int
    message: str
    peer_stage: int
    def __init__(self, kind: _Optional[str] = ..., epoch: _Optional[int] = ..., message: _Optional[str] = ..., peer_stage: _Optional[int] = ...) -> None: ...

class StopRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StopResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
