from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Capabilities(_message.Message):
    __slots__ = ("wire", "ping", "serve", "serve_one_stage", "serve_n_stage", "serve_concurrent", "direct_link", "serve_rewire", "serve_kv_budget", "serve_codec", "serve_quantized", "serve_int4_fast", "serve_4bit_rows", "serve_speculative", "serve_draft_model", "cover", "stage_assignment", "stage_snapshot", "resume", "recovery", "selftest", "stage_control", "calibrated_bottleneck", "microbatch", "n_stage", "serve_sampling", "link_keys", "serve_adapters", "serve_devices", "serve_storage", "maintenance", "serve_resume", "serve_keep", "check", "logs")
    WIRE_FIELD_NUMBER: _ClassVar[int]
    PING_FIELD_NUMBER: _ClassVar[int]
    SERVE_FIELD_NUMBER: _ClassVar[int]
    SERVE_ONE_STAGE_FIELD_NUMBER: _ClassVar[int]
    SERVE_N_STAGE_FIELD_NUMBER: _ClassVar[int]
    SERVE_CONCURRENT_FIELD_NUMBER: _ClassVar[int]
    DIRECT_LINK_FIELD_NUMBER: _ClassVar[int]
    SERVE_REWIRE_FIELD_NUMBER: _ClassVar[int]
    SERVE_KV_BUDGET_FIELD_NUMBER: _ClassVar[int]
    SERVE_CODEC_FIELD_NUMBER: _ClassVar[int]
    SERVE_QUANTIZED_FIELD_NUMBER: _ClassVar[int]
    SERVE_INT4_FAST_FIELD_NUMBER: _ClassVar[int]
    SERVE_4BIT_ROWS_FIELD_NUMBER: _ClassVar[int]
    SERVE_SPECULATIVE_FIELD_NUMBER: _ClassVar[int]
    SERVE_DRAFT_MODEL_FIELD_NUMBER: _ClassVar[int]
    COVER_FIELD_NUMBER: _ClassVar[int]
    STAGE_ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    STAGE_SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    RECOVERY_FIELD_NUMBER: _ClassVar[int]
    SELFTEST_FIELD_NUMBER: _ClassVar[int]
    STAGE_CONTROL_FIELD_NUMBER: _ClassVar[int]
    CALIBRATED_BOTTLENECK_FIELD_NUMBER: _ClassVar[int]
    MICROBATCH_FIELD_NUMBER: _ClassVar[int]
    N_STAGE_FIELD_NUMBER: _ClassVar[int]
    SERVE_SAMPLING_FIELD_NUMBER: _ClassVar[int]
    LINK_KEYS_FIELD_NUMBER: _ClassVar[int]
    SERVE_ADAPTERS_FIELD_NUMBER: _ClassVar[int]
    SERVE_DEVICES_FIELD_NUMBER: _ClassVar[int]
    SERVE_STORAGE_FIELD_NUMBER: _ClassVar[int]
    MAINTENANCE_FIELD_NUMBER: _ClassVar[int]
    SERVE_RESUME_FIELD_NUMBER: _ClassVar[int]
    SERVE_KEEP_FIELD_NUMBER: _ClassVar[int]
    CHECK_FIELD_NUMBER: _ClassVar[int]
    LOGS_FIELD_NUMBER: _ClassVar[int]
    wire: Wire
    ping: Ping
    serve: Serve
    serve_one_stage: ServeOneStage
    serve_n_stage: ServeNStage
    serve_concurrent: ServeConcurrent
    direct_link: DirectLink
    serve_rewire: ServeRewire
    serve_kv_budget: ServeKvBudget
    serve_codec: ServeCodec
    serve_quantized: ServeQuantized
    serve_int4_fast: ServeInt4Fast
    serve_4bit_rows: Serve4bitRows
    serve_speculative: ServeSpeculative
    serve_draft_model: ServeDraftModel
    cover: Cover
    stage_assignment: StageAssignment
    stage_snapshot: StageSnapshot
    resume: Resume
    recovery: Recovery
    selftest: Selftest
    stage_control: StageControl
    calibrated_bottleneck: CalibratedBottleneck
    microbatch: Microbatch
    n_stage: NStage
    serve_sampling: ServeSampling
    link_keys: LinkKeys
    serve_adapters: ServeAdapters
    serve_devices: ServeDevices
    serve_storage: ServeStorage
    maintenance: Maintenance
    serve_resume: ServeResume
    serve_keep: ServeKeep
    check: Check
    logs: Logs
    def __init__(self, wire: _Optional[_Union[Wire, _Mapping]] = ..., ping: _Optional[_Union[Ping, _Mapping]] = ..., serve: _Optional[_Union[Serve, _Mapping]] = ..., serve_one_stage: _Optional[_Union[ServeOneStage, _Mapping]] = ..., serve_n_stage: _Optional[_Union[ServeNStage, _Mapping]] = ..., serve_concurrent: _Optional[_Union[ServeConcurrent, _Mapping]] = ..., direct_link: _Optional[_Union[DirectLink, _Mapping]] = ..., serve_rewire: _Optional[_Union[ServeRewire, _Mapping]] = ..., serve_kv_budget: _Optional[_Union[ServeKvBudget, _Mapping]] = ..., serve_codec: _Optional[_Union[ServeCodec, _Mapping]] = ..., serve_quantized: _Optional[_Union[ServeQuantized, _Mapping]] = ..., serve_int4_fast: _Optional[_Union[ServeInt4Fast, _Mapping]] = ..., serve_4bit_rows: _Optional[_Union[Serve4bitRows, _Mapping]] = ..., serve_speculative: _Optional[_Union[ServeSpeculative, _Mapping]] = ..., serve_draft_model: _Optional[_Union[ServeDraftModel, _Mapping]] = ..., cover: _Optional[_Union[Cover, _Mapping]] = ..., stage_assignment: _Optional[_Union[StageAssignment, _Mapping]] = ..., stage_snapshot: _Optional[_Union[StageSnapshot, _Mapping]] = ..., resume: _Optional[_Union[Resume, _Mapping]] = ..., recovery: _Optional[_Union[Recovery, _Mapping]] = ..., selftest: _Optional[_Union[Selftest, _Mapping]] = ..., stage_control: _Optional[_Union[StageControl, _Mapping]] = ..., calibrated_bottleneck: _Optional[_Union[CalibratedBottleneck, _Mapping]] = ..., microbatch: _Optional[_Union[Microbatch, _Mapping]] = ..., n_stage: _Optional[_Union[NStage, _Mapping]] = ..., serve_sampling: _Optional[_Union[ServeSampling, _Mapping]] = ..., link_keys: _Optional[_Union[LinkKeys, _Mapping]] = ..., serve_adapters: _Optional[_Union[ServeAdapters, _Mapping]] = ..., serve_devices: _Optional[_Union[ServeDevices, _Mapping]] = ..., serve_storage: _Optional[_Union[ServeStorage, _Mapping]] = ..., maintenance: _Optional[_Union[Maintenance, _Mapping]] = ..., serve_resume: _Optional[_Union[ServeResume, _Mapping]] = ..., serve_keep: _Optional[_Union[ServeKeep, _Mapping]] = ..., check: _Optional[_Union[Check, _Mapping]] = ..., logs: _Optional[_Union[Logs, _Mapping]] = ...) -> None: ...

class Wire(_message.Message):
    __slots__ = ("version_min", "version_max", "frame_bytes_max", "dtypes")
    VERSION_MIN_FIELD_NUMBER: _ClassVar[int]
    VERSION_MAX_FIELD_NUMBER: _ClassVar[int]
    FRAME_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    DTYPES_FIELD_NUMBER: _ClassVar[int]
    version_min: int
    version_max: int
    frame_bytes_max: int
    dtypes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, version_min: _Optional[int] = ..., version_max: _Optional[int] = ..., frame_bytes_max: _Optional[int] = ..., dtypes: _Optional[_Iterable[str]] = ...) -> None: ...

class Ping(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Serve(_message.Message):
    __slots__ = ("loaded_models_max", "model_types", "prefill_chunk_tokens")
    LOADED_MODELS_MAX_FIELD_NUMBER: _ClassVar[int]
    MODEL_TYPES_FIELD_NUMBER: _ClassVar[int]
    PREFILL_CHUNK_TOKENS_FIELD_NUMBER: _ClassVar[int]
    loaded_models_max: int
    model_types: _containers.RepeatedScalarFieldContainer[str]
    prefill_chunk_tokens: int
    def __init__(self, loaded_models_max: _Optional[int] = ..., model_types: _Optional[_Iterable[str]] = ..., prefill_chunk_tokens: _Optional[int] = ...) -> None: ...

class ServeOneStage(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ServeNStage(_message.Message):
    __slots__ = ("stage_count_max",)
    STAGE_COUNT_MAX_FIELD_NUMBER: _ClassVar[int]
    stage_count_max: int
    def __init__(self, stage_count_max: _Optional[int] = ...) -> None: ...

class ServeConcurrent(_message.Message):
    __slots__ = ("in_flight_max",)
    IN_FLIGHT_MAX_FIELD_NUMBER: _ClassVar[int]
    in_flight_max: int
    def __init__(self, in_flight_max: _Optional[int] = ...) -> None: ...

class DirectLink(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ServeRewire(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ServeKvBudget(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ServeCodec(_message.Message):
    __slots__ = ("codecs",)
    CODECS_FIELD_NUMBER: _ClassVar[int]
    codecs: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, codecs: _Optional[_Iterable[str]] = ...) -> None: ...

class ServeQuantized(_message.Message):
    __slots__ = ("methods",)
    METHODS_FIELD_NUMBER: _ClassVar[int]
    methods: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, methods: _Optional[_Iterable[str]] = ...) -> None: ...

class ServeInt4Fast(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Serve4bitRows(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ServeSpeculative(_message.Message):
    __slots__ = ("drafts_max",)
    DRAFTS_MAX_FIELD_NUMBER: _ClassVar[int]
    drafts_max: int
    def __init__(self, drafts_max: _Optional[int] = ...) -> None: ...

class ServeDraftModel(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Cover(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StageAssignment(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StageSnapshot(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Resume(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Recovery(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Selftest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StageControl(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CalibratedBottleneck(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Microbatch(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class NStage(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ServeSampling(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class LinkKeys(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ServeAdapters(_message.Message):
    __slots__ = ("adapters_max",)
    ADAPTERS_MAX_FIELD_NUMBER: _ClassVar[int]
    adapters_max: int
    def __init__(self, adapters_max: _Optional[int] = ...) -> None: ...

class ServeDevices(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ServeStorage(_message.Message):
    __slots__ = ("dtypes",)
    DTYPES_FIELD_NUMBER: _ClassVar[int]
    dtypes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, dtypes: _Optional[_Iterable[str]] = ...) -> None: ...

class Maintenance(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ServeResume(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ServeKeep(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Check(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Logs(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
