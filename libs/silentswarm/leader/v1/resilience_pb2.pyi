from google.api import annotations_pb2 as _annotations_pb2
from silentswarm.core.v1 import access_pb2 as _access_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ListIncidentsRequest(_message.Message):
    __slots__ = ("model_id", "page_size", "skip")
    MODEL_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    SKIP_FIELD_NUMBER: _ClassVar[int]
    model_id: str
    page_size: int
    skip: int
    def __init__(self, model_id: _Optional[str] = ..., page_size: _Optional[int] = ..., skip: _Optional[int] = ...) -> None: ...

class ListIncidentsResponse(_message.Message):
    __slots__ = ("incidents",)
    INCIDENTS_FIELD_NUMBER: _ClassVar[int]
    incidents: _containers.RepeatedCompositeFieldContainer[Incident]
    def __init__(self, incidents: _Optional[_Iterable[_Union[Incident, _Mapping]]] = ...) -> None: ...

class Incident(_message.Message):
    __slots__ = ("incident_id", "placement_id", "model_id", "epoch", "kind", "opened_s", "step", "stages", "log", "closed_s", "outcome", "detected_ms", "recovered_ms")
    INCIDENT_ID_FIELD_NUMBER: _ClassVar[int]
    PLACEMENT_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    OPENED_S_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    STAGES_FIELD_NUMBER: _ClassVar[int]
    LOG_FIELD_NUMBER: _ClassVar[int]
    CLOSED_S_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    DETECTED_MS_FIELD_NUMBER: _ClassVar[int]
    RECOVERED_MS_FIELD_NUMBER: _ClassVar[int]
    incident_id: str
    placement_id: str
    model_id: str
    epoch: int
    kind: str
    opened_s: float
    step: str
    stages: _containers.RepeatedCompositeFieldContainer[IncidentStage]
    log: _containers.RepeatedCompositeFieldContainer[IncidentStep]
    closed_s: float
    outcome: str
    detected_ms: float
    recovered_ms: float
    def __init__(self, incident_id: _Optional[str] = ..., placement_id: _Optional[str] = ..., model_id: _Optional[str] = ..., epoch: _Optional[int] = ..., kind: _Optional[str] = ..., opened_s: _Optional[float] = ..., step: _Optional[str] = ..., stages: _Optional[_Iterable[_Union[IncidentStage, _Mapping]]] = ..., log: _Optional[_Iterable[_Union[IncidentStep, _Mapping]]] = ..., closed_s: _Optional[float] = ..., outcome: _Optional[str] = ..., detected_ms: _Optional[float] = ..., recovered_ms: _Optional[float] = ...) -> None: ...

class IncidentStage(_message.Message):
    __slots__ = ("stage_index", "lost_fellow", "replacement")
    STAGE_INDEX_FIELD_NUMBER: _ClassVar[int]
    LOST_FELLOW_FIELD_NUMBER: _ClassVar[int]
    REPLACEMENT_FIELD_NUMBER: _ClassVar[int]
    stage_index: int
    lost_fellow: str
    replacement: str
    def __init__(self, stage_index: _Optional[int] = ..., lost_fellow: _Optional[str] = ..., replacement: _Optional[str] = ...) -> None: ...

class IncidentStep(_message.Message):
    __slots__ = ("at_s", "what")
    AT_S_FIELD_NUMBER: _ClassVar[int]
    WHAT_FIELD_NUMBER: _ClassVar[int]
    at_s: float
    what: str
    def __init__(self, at_s: _Optional[float] = ..., what: _Optional[str] = ...) -> None: ...
