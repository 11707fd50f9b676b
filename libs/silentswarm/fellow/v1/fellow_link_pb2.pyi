from silentswarm.core.v1 import access_pb2 as _access_pb2
from silentswarm.core.v1 import capabilities_pb2 as _capabilities_pb2
from silentswarm.core.v1 import hardware_pb2 as _hardware_pb2
from silentswarm.core.v1 import link_pb2 as _link_pb2
from silentswarm.core.v1 import reason_pb2 as _reason_pb2
from silentswarm.core.v1 import stage_pb2 as _stage_pb2
from silentswarm.core.v1 import telemetry_pb2 as _telemetry_pb2
from silentswarm.core.v1 import weights_pb2 as _weights_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CoverKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    COVER_KIND_UNSPECIFIED: _ClassVar[CoverKind]
    COVER_KIND_HOT: _ClassVar[CoverKind]
    COVER_KIND_WARM: _ClassVar[CoverKind]

class StageEventKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STAGE_EVENT_KIND_UNSPECIFIED: _ClassVar[StageEventKind]
    STAGE_EVENT_KIND_CRASHED: _ClassVar[StageEventKind]
    STAGE_EVENT_KIND_IDLE_UNLOADED: _ClassVar[StageEventKind]
    STAGE_EVENT_KIND_EVICTED: _ClassVar[StageEventKind]
    STAGE_EVENT_KIND_LINK_BROKEN: _ClassVar[StageEventKind]
COVER_KIND_UNSPECIFIED: CoverKind
COVER_KIND_HOT: CoverKind
COVER_KIND_WARM: CoverKind
STAGE_EVENT_KIND_UNSPECIFIED: StageEventKind
STAGE_EVENT_KIND_CRASHED: StageEventKind
STAGE_EVENT_KIND_IDLE_UNLOADED: StageEventKind
STAGE_EVENT_KIND_EVICTED: StageEventKind
STAGE_EVENT_KIND_LINK_BROKEN: StageEventKind

class ConnectRequest(_message.Message):
    __slots__ = ("register", "heartbeat", "result", "progress", "stage_event")
    REGISTER_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    STAGE_EVENT_FIELD_NUMBER: _ClassVar[int]
    register: Register
    heartbeat: Heartbeat
    result: SignalResult
    progress: SignalProgress
    stage_event: StageEvent
    def __init__(self, register: _Optional[_Union[Register, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., result: _Optional[_Union[SignalResult, _Mapping]] = ..., progress: _Optional[_Union[SignalProgress, _Mapping]] = ..., stage_event: _Optional[_Union[StageEvent, _Mapping]] = ...) -> None: ...

class Register(_message.Message):
    __slots__ = ("identity", "name", "join_token", "hardware", "capabilities", "held", "version", "process_nonce", "certificate_request", "covers", "pool")
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    JOIN_TOKEN_FIELD_NUMBER: _ClassVar[int]
    HARDWARE_FIELD_NUMBER: _ClassVar[int]
    CAPABILITIES_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PROCESS_NONCE_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_REQUEST_FIELD_NUMBER: _ClassVar[int]
    COVERS_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    identity: str
    name: str
    join_token: str
    hardware: _hardware_pb2.Hardware
    capabilities: _capabilities_pb2.Capabilities
    held: _containers.RepeatedCompositeFieldContainer[HeldStage]
    version: str
    process_nonce: str
    certificate_request: bytes
    covers: _containers.RepeatedCompositeFieldContainer[HeldCover]
    pool: str
    def __init__(self, identity: _Optional[str] = ..., name: _Optional[str] = ..., join_token: _Optional[str] = ..., hardware: _Optional[_Union[_hardware_pb2.Hardware, _Mapping]] = ..., capabilities: _Optional[_Union[_capabilities_pb2.Capabilities, _Mapping]] = ..., held: _Optional[_Iterable[_Union[HeldStage, _Mapping]]] = ..., version: _Optional[str] = ..., process_nonce: _Optional[str] = ..., certificate_request: _Optional[bytes] = ..., covers: _Optional[_Iterable[_Union[HeldCover, _Mapping]]] = ..., pool: _Optional[str] = ...) -> None: ...

class HeldCover(_message.Message):
    __slots__ = ("spec", "kind", "ring_addresses", "weight_bytes", "kv_tokens_measured", "memory_bytes")
    SPEC_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    RING_ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_BYTES_FIELD_NUMBER: _ClassVar[int]
    KV_TOKENS_MEASURED_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    spec: _stage_pb2.StageSpec
    kind: CoverKind
    ring_addresses: _containers.RepeatedScalarFieldContainer[str]
    weight_bytes: int
    kv_tokens_measured: int
    memory_bytes: int
    def __init__(self, spec: _Optional[_Union[_stage_pb2.StageSpec, _Mapping]] = ..., kind: _Optional[_Union[CoverKind, str]] = ..., ring_addresses: _Optional[_Iterable[str]] = ..., weight_bytes: _Optional[int] = ..., kv_tokens_measured: _Optional[int] = ..., memory_bytes: _Optional[int] = ...) -> None: ...

class HeldStage(_message.Message):
    __slots__ = ("status", "ring_addresses")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    RING_ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    status: _stage_pb2.StageStatus
    ring_addresses: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, status: _Optional[_Union[_stage_pb2.StageStatus, _Mapping]] = ..., ring_addresses: _Optional[_Iterable[str]] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ("sequence", "devices", "stages", "covers", "telemetry")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    STAGES_FIELD_NUMBER: _ClassVar[int]
    COVERS_FIELD_NUMBER: _ClassVar[int]
    TELEMETRY_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    devices: _containers.RepeatedCompositeFieldContainer[_hardware_pb2.Device]
    stages: _containers.RepeatedCompositeFieldContainer[_stage_pb2.StageStatus]
    covers: _containers.RepeatedCompositeFieldContainer[HeldCover]
    telemetry: _telemetry_pb2.NodeTelemetry
    def __init__(self, sequence: _Optional[int] = ..., devices: _Optional[_Iterable[_Union[_hardware_pb2.Device, _Mapping]]] = ..., stages: _Optional[_Iterable[_Union[_stage_pb2.StageStatus, _Mapping]]] = ..., covers: _Optional[_Iterable[_Union[HeldCover, _Mapping]]] = ..., telemetry: _Optional[_Union[_telemetry_pb2.NodeTelemetry, _Mapping]] = ...) -> None: ...

class SignalResult(_message.Message):
    __slots__ = ("signal_id", "load", "wire", "probe", "acknowledged", "failure", "check", "cover")
    SIGNAL_ID_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    WIRE_FIELD_NUMBER: _ClassVar[int]
    PROBE_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    CHECK_FIELD_NUMBER: _ClassVar[int]
    COVER_FIELD_NUMBER: _ClassVar[int]
    signal_id: int
    load: LoadDone
    wire: WireDone
    probe: ProbeDone
    acknowledged: Acknowledged
    failure: SignalFailure
    check: CheckDone
    cover: CoverDone
    def __init__(self, signal_id: _Optional[int] = ..., load: _Optional[_Union[LoadDone, _Mapping]] = ..., wire: _Optional[_Union[WireDone, _Mapping]] = ..., probe: _Optional[_Union[ProbeDone, _Mapping]] = ..., acknowledged: _Optional[_Union[Acknowledged, _Mapping]] = ..., failure: _Optional[_Union[SignalFailure, _Mapping]] = ..., check: _Optional[_Union[CheckDone, _Mapping]] = ..., cover: _Optional[_Union[CoverDone, _Mapping]] = ...) -> None: ...

class LoadDone(_message.Message):
    __slots__ = ("ring_addresses", "weight_bytes", "fetched_bytes", "kv_tokens_measured", "quantization", "notes", "device_weight_bytes")
    RING_ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_BYTES_FIELD_NUMBER: _ClassVar[int]
    FETCHED_BYTES_FIELD_NUMBER: _ClassVar[int]
    KV_TOKENS_MEASURED_FIELD_NUMBER: _ClassVar[int]
    QUANTIZATION_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    DEVICE_WEIGHT_BYTES_FIELD_NUMBER: _ClassVar[int]
    ring_addresses: _containers.RepeatedScalarFieldContainer[str]
    weight_bytes: int
    fetched_bytes: int
    kv_tokens_measured: int
    quantization: str
    notes: _containers.RepeatedScalarFieldContainer[str]
    device_weight_bytes: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, ring_addresses: _Optional[_Iterable[str]] = ..., weight_bytes: _Optional[int] = ..., fetched_bytes: _Optional[int] = ..., kv_tokens_measured: _Optional[int] = ..., quantization: _Optional[str] = ..., notes: _Optional[_Iterable[str]] = ..., device_weight_bytes: _Optional[_Iterable[int]] = ...) -> None: ...

class WireDone(_message.Message):
    __slots__ = ("connected", "failure")
    CONNECTED_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    connected: bool
    failure: str
    def __init__(self, connected: _Optional[bool] = ..., failure: _Optional[str] = ...) -> None: ...

class ProbeDone(_message.Message):
    __slots__ = ("lap_ms", "stage_ms")
    LAP_MS_FIELD_NUMBER: _ClassVar[int]
    STAGE_MS_FIELD_NUMBER: _ClassVar[int]
    lap_ms: float
    stage_ms: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, lap_ms: _Optional[float] = ..., stage_ms: _Optional[_Iterable[float]] = ...) -> None: ...

class CheckDone(_message.Message):
    __slots__ = ("is_alive", "failure", "reached_address")
    IS_ALIVE_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    REACHED_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    is_alive: bool
    failure: str
    reached_address: str
    def __init__(self, is_alive: _Optional[bool] = ..., failure: _Optional[str] = ..., reached_address: _Optional[str] = ...) -> None: ...

class CoverDone(_message.Message):
    __slots__ = ("cover", "fetched_bytes")
    COVER_FIELD_NUMBER: _ClassVar[int]
    FETCHED_BYTES_FIELD_NUMBER: _ClassVar[int]
    cover: HeldCover
    fetched_bytes: int
    def __init__(self, cover: _Optional[_Union[HeldCover, _Mapping]] = ..., fetched_bytes: _Optional[int] = ...) -> None: ...

class Acknowledged(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SignalFailure(_message.Message):
    __slots__ = ("reason", "message", "metadata")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    reason: _reason_pb2.Reason
    message: str
    metadata: _containers.ScalarMap[str, str]
    def __init__(self, reason: _Optional[_Union[_reason_pb2.Reason, str]] = ..., message: _Optional[str] = ..., metadata: _Optional[_Mapping[str, str]] = ...) -> None: ...

class SignalProgress(_message.Message):
    __slots__ = ("signal_id", "step", "done", "total")
    SIGNAL_ID_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    signal_id: int
    step: str
    done: int
    total: int
    def __init__(self, signal_id: _Optional[int] = ..., step: _Optional[str] = ..., done: _Optional[int] = ..., total: _Optional[int] = ...) -> None: ...

class StageEvent(_message.Message):
    __slots__ = ("spec", "kind", "message", "peer_stage")
    SPEC_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    PEER_STAGE_FIELD_NUMBER: _ClassVar[int]
    spec: _stage_pb2.StageSpec
    kind: StageEventKind
    message: str
    peer_stage: int
    def __init__(self, spec: _Optional[_Union[_stage_pb2.StageSpec, _Mapping]] = ..., kind: _Optional[_Union[StageEventKind, str]] = ..., message: _Optional[str] = ..., peer_stage: _Optional[int] = ...) -> None: ...

class ConnectResponse(_message.Message):
    __slots__ = ("registered", "signal")
    REGISTERED_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    registered: Registered
    signal: Signal
    def __init__(self, registered: _Optional[_Union[Registered, _Mapping]] = ..., signal: _Optional[_Union[Signal, _Mapping]] = ...) -> None: ...

class Registered(_message.Message):
    __slots__ = ("fellow_id", "name", "heartbeat_ms", "lease_ms", "unwanted", "node_credential", "certificate", "roots")
    FELLOW_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_MS_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    UNWANTED_FIELD_NUMBER: _ClassVar[int]
    NODE_CREDENTIAL_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    ROOTS_FIELD_NUMBER: _ClassVar[int]
    fellow_id: str
    name: str
    heartbeat_ms: int
    lease_ms: int
    unwanted: _containers.RepeatedCompositeFieldContainer[_stage_pb2.StageSpec]
    node_credential: str
    certificate: bytes
    roots: bytes
    def __init__(self, fellow_id: _Optional[str] = ..., name: _Optional[str] = ..., heartbeat_ms: _Optional[int] = ..., lease_ms: _Optional[int] = ..., unwanted: _Optional[_Iterable[_Union[_stage_pb2.StageSpec, _Mapping]]] = ..., node_credential: _Optional[str] = ..., certificate: _Optional[bytes] = ..., roots: _Optional[bytes] = ...) -> None: ...

class Signal(_message.Message):
    __slots__ = ("signal_id", "timeout_ms", "load", "unload", "wire", "probe", "stop", "ping", "purge", "update", "check", "cover", "uncover")
    SIGNAL_ID_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    UNLOAD_FIELD_NUMBER: _ClassVar[int]
    WIRE_FIELD_NUMBER: _ClassVar[int]
    PROBE_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    PING_FIELD_NUMBER: _ClassVar[int]
    PURGE_FIELD_NUMBER: _ClassVar[int]
    UPDATE_FIELD_NUMBER: _ClassVar[int]
    CHECK_FIELD_NUMBER: _ClassVar[int]
    COVER_FIELD_NUMBER: _ClassVar[int]
    UNCOVER_FIELD_NUMBER: _ClassVar[int]
    signal_id: int
    timeout_ms: int
    load: LoadSignal
    unload: UnloadSignal
    wire: WireSignal
    probe: ProbeSignal
    stop: StopSignal
    ping: PingSignal
    purge: PurgeSignal
    update: UpdateSignal
    check: CheckSignal
    cover: CoverSignal
    uncover: UncoverSignal
    def __init__(self, signal_id: _Optional[int] = ..., timeout_ms: _Optional[int] = ..., load: _Optional[_Union[LoadSignal, _Mapping]] = ..., unload: _Optional[_Union[UnloadSignal, _Mapping]] = ..., wire: _Optional[_Union[WireSignal, _Mapping]] = ..., probe: _Optional[_Union[ProbeSignal, _Mapping]] = ..., stop: _Optional[_Union[StopSignal, _Mapping]] = ..., ping: _Optional[_Union[PingSignal, _Mapping]] = ..., purge: _Optional[_Union[PurgeSignal, _Mapping]] = ..., update: _Optional[_Union[UpdateSignal, _Mapping]] = ..., check: _Optional[_Union[CheckSignal, _Mapping]] = ..., cover: _Optional[_Union[CoverSignal, _Mapping]] = ..., uncover: _Optional[_Union[UncoverSignal, _Mapping]] = ...) -> None: ...

class LoadSignal(_message.Message):
    __slots__ = ("spec", "listen", "device_runs")
    SPEC_FIELD_NUMBER: _ClassVar[int]
    LISTEN_FIELD_NUMBER: _ClassVar[int]
    DEVICE_RUNS_FIELD_NUMBER: _ClassVar[int]
    spec: _stage_pb2.StageSpec
    listen: bool
    device_runs: _containers.RepeatedCompositeFieldContainer[_weights_pb2.DeviceRun]
    def __init__(self, spec: _Optional[_Union[_stage_pb2.StageSpec, _Mapping]] = ..., listen: _Optional[bool] = ..., device_runs: _Optional[_Iterable[_Union[_weights_pb2.DeviceRun, _Mapping]]] = ...) -> None: ...

class UnloadSignal(_message.Message):
    __slots__ = ("placement_id",)
    PLACEMENT_ID_FIELD_NUMBER: _ClassVar[int]
    placement_id: str
    def __init__(self, placement_id: _Optional[str] = ...) -> None: ...

class WireSignal(_message.Message):
    __slots__ = ("placement_id", "epoch", "route", "next_addresses", "previous_route", "relay_address", "kv_tokens", "keys", "keep_sessions", "fresh_stages", "stage_index")
    PLACEMENT_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    NEXT_ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_ROUTE_FIELD_NUMBER: _ClassVar[int]
    RELAY_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    KV_TOKENS_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    KEEP_SESSIONS_FIELD_NUMBER: _ClassVar[int]
    FRESH_STAGES_FIELD_NUMBER: _ClassVar[int]
    STAGE_INDEX_FIELD_NUMBER: _ClassVar[int]
    placement_id: str
    epoch: int
    route: _stage_pb2.Route
    next_addresses: _containers.RepeatedScalarFieldContainer[str]
    previous_route: _stage_pb2.Route
    relay_address: str
    kv_tokens: int
    keys: _link_pb2.RingKeys
    keep_sessions: bool
    fresh_stages: _containers.RepeatedScalarFieldContainer[int]
    stage_index: int
    def __init__(self, placement_id: _Optional[str] = ..., epoch: _Optional[int] = ..., route: _Optional[_Union[_stage_pb2.Route, str]] = ..., next_addresses: _Optional[_Iterable[str]] = ..., previous_route: _Optional[_Union[_stage_pb2.Route, str]] = ..., relay_address: _Optional[str] = ..., kv_tokens: _Optional[int] = ..., keys: _Optional[_Union[_link_pb2.RingKeys, _Mapping]] = ..., keep_sessions: _Optional[bool] = ..., fresh_stages: _Optional[_Iterable[int]] = ..., stage_index: _Optional[int] = ...) -> None: ...

class ProbeSignal(_message.Message):
    __slots__ = ("placement_id",)
    PLACEMENT_ID_FIELD_NUMBER: _ClassVar[int]
    placement_id: str
    def __init__(self, placement_id: _Optional[str] = ...) -> None: ...

class StopSignal(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PingSignal(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PurgeSignal(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class UpdateSignal(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CheckSignal(_message.Message):
    __slots__ = ("placement_id", "addresses")
    PLACEMENT_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    placement_id: str
    addresses: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, placement_id: _Optional[str] = ..., addresses: _Optional[_Iterable[str]] = ...) -> None: ...

class CoverSignal(_message.Message):
    __slots__ = ("spec", "kind", "listen", "device_runs")
    SPEC_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    LISTEN_FIELD_NUMBER: _ClassVar[int]
    DEVICE_RUNS_FIELD_NUMBER: _ClassVar[int]
    spec: _stage_pb2.StageSpec
    kind: CoverKind
    listen: bool
    device_runs: _containers.RepeatedCompositeFieldContainer[_weights_pb2.DeviceRun]
    def __init__(self, spec: _Optional[_Union[_stage_pb2.StageSpec, _Mapping]] = ..., kind: _Optional[_Union[CoverKind, str]] = ..., listen: _Optional[bool] = ..., device_runs: _Optional[_Iterable[_Union[_weights_pb2.DeviceRun, _Mapping]]] = ...) -> None: ...

class UncoverSignal(_message.Message):
    __slots__ = ("placement_id", "stage_index")
    PLACEMENT_ID_FIELD_NUMBER: _ClassVar[int]
    STAGE_INDEX_FIELD_NUMBER: _ClassVar[int]
    placement_id: str
    stage_index: int
    def __init__(self, placement_id: _Optional[str] = ..., stage_index: _Optional[int] = ...) -> None: ...
