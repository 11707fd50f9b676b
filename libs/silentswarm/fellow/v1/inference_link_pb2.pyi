from silentswarm.core.v1 import access_pb2 as _access_pb2
from silentswarm.core.v1 import generation_pb2 as _generation_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ServeRequest(_message.Message):
    __slots__ = ("hello", "event")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    EVENT_FIELD_NUMBER: _ClassVar[int]
    hello: InferenceHello
    event: ReplyEvent
    def __init__(self, hello: _Optional[_Union[InferenceHello, _Mapping]] = ..., event: _Optional[_Union[ReplyEvent, _Mapping]] = ...) -> None: ...

class InferenceHello(_message.Message):
    __slots__ = ("fellow_id", "process_nonce")
    FELLOW_ID_FIELD_NUMBER: _ClassVar[int]
    PROCESS_NONCE_FIELD_NUMBER: _ClassVar[int]
    fellow_id: str
    process_nonce: str
    def __init__(self, fellow_id: _Optional[str] = ..., process_nonce: _Optional[str] = ...) -> None: ...

class ReplyEvent(_message.Message):
    __slots__ = ("request_id", "event")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    EVENT_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    event: _generation_pb2.GenerationEvent
    def __init__(self, request_id: _Optional[str] = ..., event: _Optional[_Union[_generation_pb2.GenerationEvent, _Mapping]] = ...) -> None: ...

class ServeResponse(_message.Message):
    __slots__ = ("request", "cancel")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    request: ReplyRequest
    cancel: CancelReply
    def __init__(self, request: _Optional[_Union[ReplyRequest, _Mapping]] = ..., cancel: _Optional[_Union[CancelReply, _Mapping]] = ...) -> None: ...

class ReplyRequest(_message.Message):
    __slots__ = ("request_id", "placement_id", "epoch", "generation")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    PLACEMENT_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    placement_id: str
    epoch: int
    generation: _generation_pb2.Generation
    def __init__(self, request_id: _Optional[str] = ..., placement_id: _Optional[str] = ..., epoch: _Optional[int] = ..., generation: _Optional[_Union[_generation_pb2.Generation, _Mapping]] = ...) -> None: ...

class CancelReply(_message.Message):
    __slots__ = ("request_id",)
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    def __init__(self, request_id: _Optional[str] = ...) -> None: ...
