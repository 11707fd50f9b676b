from google.api import annotations_pb2 as _annotations_pb2
from silentswarm.core.v1 import access_pb2 as _access_pb2
from silentswarm.core.v1 import capabilities_pb2 as _capabilities_pb2
from silentswarm.core.v1 import hardware_pb2 as _hardware_pb2
from silentswarm.core.v1 import stage_pb2 as _stage_pb2
from silentswarm.leader.v1 import telemetry_pb2 as _telemetry_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ListFellowsRequest(_message.Message):
    __slots__ = ("pool",)
    POOL_FIELD_NUMBER: _ClassVar[int]
    pool: str
    def __init__(self, pool: _Optional[str] = ...) -> None: ...

class ListFellowsResponse(_message.Message):
    __slots__ = ("fellows",)
    FELLOWS_FIELD_NUMBER: _ClassVar[int]
    fellows: _containers.RepeatedCompositeFieldContainer[Fellow]
    def __init__(self, fellows: _Optional[_Iterable[_Union[Fellow, _Mapping]]] = ...) -> None: ...

class Fellow(_message.Message):
    __slots__ = ("fellow_id", "name", "state", "hardware", "capabilities", "stages", "heartbeat_age_s", "version", "joined_s", "pool", "grade", "availability")
    FELLOW_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    HARDWARE_FIELD_NUMBER: _ClassVar[int]
    CAPABILITIES_FIELD_NUMBER: _ClassVar[int]
    STAGES_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_AGE_S_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    JOINED_S_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    GRADE_FIELD_NUMBER: _ClassVar[int]
    AVAILABILITY_FIELD_NUMBER: _ClassVar[int]
    fellow_id: str
    name: str
    state: str
    hardware: _hardware_pb2.Hardware
    capabilities: _capabilities_pb2.Capabilities
    stages: _containers.RepeatedCompositeFieldContainer[_stage_pb2.StageStatus]
    heartbeat_age_s: float
    version: str
    joined_s: int
    pool: str
    grade: _telemetry_pb2.Grade
    availability: float
    def __init__(self, fellow_id: _Optional[str] = ..., name: _Optional[str] = ..., state: _Optional[str] = ..., hardware: _Optional[_Union[_hardware_pb2.Hardware, _Mapping]] = ..., capabilities: _Optional[_Union[_capabilities_pb2.Capabilities, _Mapping]] = ..., stages: _Optional[_Iterable[_Union[_stage_pb2.StageStatus, _Mapping]]] = ..., heartbeat_age_s: _Optional[float] = ..., version: _Optional[str] = ..., joined_s: _Optional[int] = ..., pool: _Optional[str] = ..., grade: _Optional[_Union[_telemetry_pb2.Grade, _Mapping]] = ..., availability: _Optional[float] = ...) -> None: ...

class ListDevicesRequest(_message.Message):
    __slots__ = ("pool",)
    POOL_FIELD_NUMBER: _ClassVar[int]
    pool: str
    def __init__(self, pool: _Optional[str] = ...) -> None: ...

class ListDevicesResponse(_message.Message):
    __slots__ = ("devices",)
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    devices: _containers.RepeatedCompositeFieldContainer[FellowDevice]
    def __init__(self, devices: _Optional[_Iterable[_Union[FellowDevice, _Mapping]]] = ...) -> None: ...

class FellowDevice(_message.Message):
    __slots__ = ("fellow_id", "fellow_name", "device")
    FELLOW_ID_FIELD_NUMBER: _ClassVar[int]
    FELLOW_NAME_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    fellow_id: str
    fellow_name: str
    device: _hardware_pb2.Device
    def __init__(self, fellow_id: _Optional[str] = ..., fellow_name: _Optional[str] = ..., device: _Optional[_Union[_hardware_pb2.Device, _Mapping]] = ...) -> None: ...

class DeleteFellowRequest(_message.Message):
    __slots__ = ("fellow_id",)
    FELLOW_ID_FIELD_NUMBER: _ClassVar[int]
    fellow_id: str
    def __init__(self, fellow_id: _Optional[str] = ...) -> None: ...

class DeleteFellowResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PingFellowRequest(_message.Message):
    __slots__ = ("fellow_id",)
    FELLOW_ID_FIELD_NUMBER: _ClassVar[int]
    fellow_id: str
    def __init__(self, fellow_id: _Optional[str] = ...) -> None: ...

class PingFellowResponse(_message.Message):
    __slots__ = ("round_trip_ms",)
    ROUND_TRIP_MS_FIELD_NUMBER: _ClassVar[int]
    round_trip_ms: float
    def __init__(self, round_trip_ms: _Optional[float] = ...) -> None: ...

class ReleaseFellowRequest(_message.Message):
    __slots__ = ("fellow_id",)
    FELLOW_ID_FIELD_NUMBER: _ClassVar[int]
    fellow_id: str
    def __init__(self, fellow_id: _Optional[str] = ...) -> None: ...

class ReleaseFellowResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PurgeFellowRequest(_message.Message):
    __slots__ = ("fellow_id",)
    FELLOW_ID_FIELD_NUMBER: _ClassVar[int]
    fellow_id: str
    def __init__(self, fellow_id: _Optional[str] = ...) -> None: ...

class PurgeFellowResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class UpdateFellowRequest(_message.Message):
    __slots__ = ("fellow_id",)
    FELLOW_ID_FIELD_NUMBER: _ClassVar[int]
    fellow_id: str
    def __init__(self, fellow_id: _Optional[str] = ...) -> None: ...

class UpdateFellowResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DrainFellowRequest(_message.Message):
    __slots__ = ("fellow_id",)
    FELLOW_ID_FIELD_NUMBER: _ClassVar[int]
    fellow_id: str
    def __init__(self, fellow_id: _Optional[str] = ...) -> None: ...

class DrainFellowResponse(_message.Message):
    __slots__ = ("moves",)
    MOVES_FIELD_NUMBER: _ClassVar[int]
    moves: _containers.RepeatedCompositeFieldContainer[DrainMove]
    def __init__(self, moves: _Optional[_Iterable[_Union[DrainMove, _Mapping]]] = ...) -> None: ...

class DrainMove(_message.Message):
    __slots__ = ("model_id", "stage_index", "to_fellow")
    MODEL_ID_FIELD_NUMBER: _ClassVar[int]
    STAGE_INDEX_FIELD_NUMBER: _ClassVar[int]
    TO_FELLOW_FIELD_NUMBER: _ClassVar[int]
    model_id: str
    stage_index: int
    to_fellow: str
    def __init__(self, model_id: _Optional[str] = ..., stage_index: _Optional[int] = ..., to_fellow: _Optional[str] = ...) -> None: ...

class UndrainFellowRequest(_message.Message):
    __slots__ = ("fellow_id",)
    FELLOW_ID_FIELD_NUMBER: _ClassVar[int]
    fellow_id: str
    def __init__(self, fellow_id: _Optional[str] = ...) -> None: ...

class UndrainFellowResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
