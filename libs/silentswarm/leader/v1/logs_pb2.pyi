from google.api import annotations_pb2 as _annotations_pb2
from silentswarm.core.v1 import access_pb2 as _access_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class WatchLogsRequest(_message.Message):
    __slots__ = ("fellow_id", "tail_lines", "follow", "source")
    FELLOW_ID_FIELD_NUMBER: _ClassVar[int]
    TAIL_LINES_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    fellow_id: str
    tail_lines: int
    follow: bool
    source: str
    def __init__(self, fellow_id: _Optional[str] = ..., tail_lines: _Optional[int] = ..., follow: _Optional[bool] = ..., source: _Optional[str] = ...) -> None: ...

class LogLine(_message.Message):
    __slots__ = ("number", "at_s", "source", "text")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    AT_S_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    number: int
    at_s: float
    source: str
    text: str
    def __init__(self, number: _Optional[int] = ..., at_s: _Optional[float] = ..., source: _Optional[str] = ..., text: _Optional[str] = ...) -> None: ...
