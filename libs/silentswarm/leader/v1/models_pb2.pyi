from google.api import annotations_pb2 as _annotations_pb2
from silentswarm.core.v1 import access_pb2 as _access_pb2
from silentswarm.core.v1 import weights_pb2 as _weights_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ListModelsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListModelsResponse(_message.Message):
    __slots__ = ("models",)
    MODELS_FIELD_NUMBER: _ClassVar[int]
    models: _containers.RepeatedCompositeFieldContainer[Model]
    def __init__(self, models: _Optional[_Iterable[_Union[Model, _Mapping]]] = ...) -> None: ...

class GetModelRequest(_message.Message):
    __slots__ = ("model_id",)
    MODEL_ID_FIELD_NUMBER: _ClassVar[int]
    model_id: str
    def __init__(self, model_id: _Optional[str] = ...) -> None: ...

class Model(_message.Message):
    __slots__ = ("model_id", "model_type", "layer_count", "parameter_count", "weight_bytes", "context_tokens_max", "created_s", "source", "broken", "state", "quantization", "split", "adapter", "adapters", "weights_from", "held")
    MODEL_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_TYPE_FIELD_NUMBER: _ClassVar[int]
    LAYER_COUNT_FIELD_NUMBER: _ClassVar[int]
    PARAMETER_COUNT_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_BYTES_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_TOKENS_MAX_FIELD_NUMBER: _ClassVar[int]
    CREATED_S_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    BROKEN_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    QUANTIZATION_FIELD_NUMBER: _ClassVar[int]
    SPLIT_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_FIELD_NUMBER: _ClassVar[int]
    ADAPTERS_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FROM_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    model_id: str
    model_type: str
    layer_count: int
    parameter_count: int
    weight_bytes: int
    context_tokens_max: int
    created_s: int
    source: str
    broken: str
    state: str
    quantization: _weights_pb2.Quantization
    split: TrainingSplit
    adapter: Adapter
    adapters: _containers.RepeatedScalarFieldContainer[str]
    weights_from: str
    held: _containers.RepeatedCompositeFieldContainer[HeldBytes]
    def __init__(self, model_id: _Optional[str] = ..., model_type: _Optional[str] = ..., layer_count: _Optional[int] = ..., parameter_count: _Optional[int] = ..., weight_bytes: _Optional[int] = ..., context_tokens_max: _Optional[int] = ..., created_s: _Optional[int] = ..., source: _Optional[str] = ..., broken: _Optional[str] = ..., state: _Optional[str] = ..., quantization: _Optional[_Union[_weights_pb2.Quantization, _Mapping]] = ..., split: _Optional[_Union[TrainingSplit, _Mapping]] = ..., adapter: _Optional[_Union[Adapter, _Mapping]] = ..., adapters: _Optional[_Iterable[str]] = ..., weights_from: _Optional[str] = ..., held: _Optional[_Iterable[_Union[HeldBytes, _Mapping]]] = ...) -> None: ...

class HeldBytes(_message.Message):
    __slots__ = ("quantization", "weight_bytes")
    QUANTIZATION_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_BYTES_FIELD_NUMBER: _ClassVar[int]
    quantization: str
    weight_bytes: int
    def __init__(self, quantization: _Optional[str] = ..., weight_bytes: _Optional[int] = ...) -> None: ...

class TrainingSplit(_message.Message):
    __slots__ = ("stage_count", "recorded", "shards")
    STAGE_COUNT_FIELD_NUMBER: _ClassVar[int]
    RECORDED_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    stage_count: int
    recorded: bool
    shards: _containers.RepeatedCompositeFieldContainer[Shard]
    def __init__(self, stage_count: _Optional[int] = ..., recorded: _Optional[bool] = ..., shards: _Optional[_Iterable[_Union[Shard, _Mapping]]] = ...) -> None: ...

class Shard(_message.Message):
    __slots__ = ("layer_start", "layer_stop", "weight_bytes", "codec_out")
    LAYER_START_FIELD_NUMBER: _ClassVar[int]
    LAYER_STOP_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_BYTES_FIELD_NUMBER: _ClassVar[int]
    CODEC_OUT_FIELD_NUMBER: _ClassVar[int]
    layer_start: int
    layer_stop: int
    weight_bytes: int
    codec_out: str
    def __init__(self, layer_start: _Optional[int] = ..., layer_stop: _Optional[int] = ..., weight_bytes: _Optional[int] = ..., codec_out: _Optional[str] = ...) -> None: ...

class Adapter(_message.Message):
    __slots__ = ("base_model_id", "rank", "targets")
    BASE_MODEL_ID_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    base_model_id: str
    rank: int
    targets: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, base_model_id: _Optional[str] = ..., rank: _Optional[int] = ..., targets: _Optional[_Iterable[str]] = ...) -> None: ...

class ImportModelRequest(_message.Message):
    __slots__ = ("source", "model_id", "revision", "base_model_id", "by_reference")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    MODEL_ID_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    BASE_MODEL_ID_FIELD_NUMBER: _ClassVar[int]
    BY_REFERENCE_FIELD_NUMBER: _ClassVar[int]
    source: str
    model_id: str
    revision: str
    base_model_id: str
    by_reference: bool
    def __init__(self, source: _Optional[str] = ..., model_id: _Optional[str] = ..., revision: _Optional[str] = ..., base_model_id: _Optional[str] = ..., by_reference: _Optional[bool] = ...) -> None: ...

class ImportModelEvent(_message.Message):
    __slots__ = ("progress", "model")
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    progress: ImportProgress
    model: Model
    def __init__(self, progress: _Optional[_Union[ImportProgress, _Mapping]] = ..., model: _Optional[_Union[Model, _Mapping]] = ...) -> None: ...

class ImportProgress(_message.Message):
    __slots__ = ("step", "done", "total")
    STEP_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    step: str
    done: int
    total: int
    def __init__(self, step: _Optional[str] = ..., done: _Optional[int] = ..., total: _Optional[int] = ...) -> None: ...
