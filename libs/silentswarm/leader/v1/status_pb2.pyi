from google.api import annotations_pb2 as _annotations_pb2
from silentswarm.core.v1 import access_pb2 as _access_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class GetHealthRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetHealthResponse(_message.Message):
    __slots__ = ("version", "uptime_s")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    UPTIME_S_FIELD_NUMBER: _ClassVar[int]
    version: str
    uptime_s: float
    def __init__(self, version: _Optional[str] = ..., uptime_s: _Optional[float] = ...) -> None: ...

class GetReadyRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetReadyResponse(_message.Message):
    __slots__ = ("ready", "reasons")
    READY_FIELD_NUMBER: _ClassVar[int]
    REASONS_FIELD_NUMBER: _ClassVar[int]
    ready: bool
    reasons: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, ready: _Optional[bool] = ..., reasons: _Optional[_Iterable[str]] = ...) -> None: ...
