from silentswarm.core.v1 import access_pb2 as _access_pb2
from silentswarm.core.v1 import generation_pb2 as _generation_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ResumeRequest(_message.Message):
    __slots__ = ("request_id", "after_sequence")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    AFTER_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    after_sequence: int
    def __init__(self, request_id: _Optional[str] = ..., after_sequence: _Optional[int] = ...) -> None: ...

class GenerateRequest(_message.Message):
    __slots__ = ("model_id", "generation", "request_id")
    MODEL_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    model_id: str
    generation: _generation_pb2.Generation
    request_id: str
    def __init__(self, model_id: _Optional[str] = ..., generation: _Optional[_Union[_generation_pb2.Generation, _Mapping]] = ..., request_id: _Optional[str] = ...) -> None: ...

class GenerateEvent(_message.Message):
    __slots__ = ("request_id", "event")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    EVENT_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    event: _generation_pb2.GenerationEvent
    def __init__(self, request_id: _Optional[str] = ..., event: _Optional[_Union[_generation_pb2.GenerationEvent, _Mapping]] = ...) -> None: ...
