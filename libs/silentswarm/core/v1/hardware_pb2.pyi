from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Hardware(_message.Message):
    __slots__ = ("hostname", "platform", "cpu_count", "memory_total_bytes", "devices", "leader_round_trip_ms", "leader_down_bytes_per_s", "leader_up_bytes_per_s")
    HOSTNAME_FIELD_NUMBER: _ClassVar[int]
    PLATFORM_FIELD_NUMBER: _ClassVar[int]
    CPU_COUNT_FIELD_NUMBER: _ClassVar[int]
    MEMORY_TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    LEADER_ROUND_TRIP_MS_FIELD_NUMBER: _ClassVar[int]
    LEADER_DOWN_BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    LEADER_UP_BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    hostname: str
    platform: str
    cpu_count: int
    memory_total_bytes: int
    devices: _containers.RepeatedCompositeFieldContainer[Device]
    leader_round_trip_ms: float
    leader_down_bytes_per_s: float
    leader_up_bytes_per_s: float
    def __init__(self, hostname: _Optional[str] = ..., platform: _Optional[str] = ..., cpu_count: _Optional[int] = ..., memory_total_bytes: _Optional[int] = ..., devices: _Optional[_Iterable[_Union[Device, _Mapping]]] = ..., leader_round_trip_ms: _Optional[float] = ..., leader_down_bytes_per_s: _Optional[float] = ..., leader_up_bytes_per_s: _Optional[float] = ...) -> None: ...

class Device(_message.Message):
    __slots__ = ("device_index", "kind", "name", "memory_total_bytes", "memory_free_bytes", "compute_capability", "compute_dtype", "read_bytes_per_s", "float32_flops", "float16_flops")
    DEVICE_INDEX_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    MEMORY_TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_CAPABILITY_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_DTYPE_FIELD_NUMBER: _ClassVar[int]
    READ_BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    FLOAT32_FLOPS_FIELD_NUMBER: _ClassVar[int]
    FLOAT16_FLOPS_FIELD_NUMBER: _ClassVar[int]
    device_index: int
    kind: str
    name: str
    memory_total_bytes: int
    memory_free_bytes: int
    compute_capability: str
    compute_dtype: str
    read_bytes_per_s: float
    float32_flops: float
    float16_flops: float
    def __init__(self, device_index: _Optional[int] = ..., kind: _Optional[str] = ..., name: _Optional[str] = ..., memory_total_bytes: _Optional[int] = ..., memory_free_bytes: _Optional[int] = ..., compute_capability: _Optional[str] = ..., compute_dtype: _Optional[str] = ..., read_bytes_per_s: _Optional[float] = ..., float32_flops: _Optional[float] = ..., float16_flops: _Optional[float] = ...) -> None: ...
