from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class NodeTelemetry(_message.Message):
    __slots__ = ("devices", "leader_round_trip_ms", "peers", "out_of_memory_count", "error_count", "stage_crash_count", "restart_count", "cpu_busy_share", "memory_free_bytes", "disk_free_bytes", "sent_bytes", "received_bytes")
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    LEADER_ROUND_TRIP_MS_FIELD_NUMBER: _ClassVar[int]
    PEERS_FIELD_NUMBER: _ClassVar[int]
    OUT_OF_MEMORY_COUNT_FIELD_NUMBER: _ClassVar[int]
    ERROR_COUNT_FIELD_NUMBER: _ClassVar[int]
    STAGE_CRASH_COUNT_FIELD_NUMBER: _ClassVar[int]
    RESTART_COUNT_FIELD_NUMBER: _ClassVar[int]
    CPU_BUSY_SHARE_FIELD_NUMBER: _ClassVar[int]
    MEMORY_FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    DISK_FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    SENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_BYTES_FIELD_NUMBER: _ClassVar[int]
    devices: _containers.RepeatedCompositeFieldContainer[DeviceTelemetry]
    leader_round_trip_ms: float
    peers: _containers.RepeatedCompositeFieldContainer[PeerRoundTrip]
    out_of_memory_count: int
    error_count: int
    stage_crash_count: int
    restart_count: int
    cpu_busy_share: float
    memory_free_bytes: int
    disk_free_bytes: int
    sent_bytes: int
    received_bytes: int
    def __init__(self, devices: _Optional[_Iterable[_Union[DeviceTelemetry, _Mapping]]] = ..., leader_round_trip_ms: _Optional[float] = ..., peers: _Optional[_Iterable[_Union[PeerRoundTrip, _Mapping]]] = ..., out_of_memory_count: _Optional[int] = ..., error_count: _Optional[int] = ..., stage_crash_count: _Optional[int] = ..., restart_count: _Optional[int] = ..., cpu_busy_share: _Optional[float] = ..., memory_free_bytes: _Optional[int] = ..., disk_free_bytes: _Optional[int] = ..., sent_bytes: _Optional[int] = ..., received_bytes: _Optional[int] = ...) -> None: ...

class DeviceTelemetry(_message.Message):
    __slots__ = ("device_index", "busy_share", "temperature_c", "power_w")
    DEVICE_INDEX_FIELD_NUMBER: _ClassVar[int]
    BUSY_SHARE_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_C_FIELD_NUMBER: _ClassVar[int]
    POWER_W_FIELD_NUMBER: _ClassVar[int]
    device_index: int
    busy_share: float
    temperature_c: float
    power_w: float
    def __init__(self, device_index: _Optional[int] = ..., busy_share: _Optional[float] = ..., temperature_c: _Optional[float] = ..., power_w: _Optional[float] = ...) -> None: ...

class PeerRoundTrip(_message.Message):
    __slots__ = ("placement_id", "stage_index", "round_trip_ms")
    PLACEMENT_ID_FIELD_NUMBER: _ClassVar[int]
    STAGE_INDEX_FIELD_NUMBER: _ClassVar[int]
    ROUND_TRIP_MS_FIELD_NUMBER: _ClassVar[int]
    placement_id: str
    stage_index: int
    round_trip_ms: float
    def __init__(self, placement_id: _Optional[str] = ..., stage_index: _Optional[int] = ..., round_trip_ms: _Optional[float] = ...) -> None: ...
