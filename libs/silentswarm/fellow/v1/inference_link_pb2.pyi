from silentswarm.core.v1 import access_pb2 as _access_pb2
from silentswarm.core.v1 import generation_pb2 as _generation_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
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
    __slots__ = ("fellow_id", "process_nonce", "kept")
    FELLOW_ID_FIELD_NUMBER: _ClassVar[int]
    PROCESS_NONCE_FIELD_NUMBER: _ClassVar[int]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    fellow_id: str
    process_nonce: str
    kept: _containers.RepeatedCompositeFieldContainer[KeptReply]
    def __init__(self, fellow_id: _Optional[str] = ..., process_nonce: _Optional[str] = ..., kept: _Optional[_Iterable[_Union[KeptReply, _Mapping]]] = ...) -> None: ...

class KeptReply(_message.Message):
    __slots__ = ("request_id", "placement_id", "epoch", "owner", "first_sequence", "last_sequence", "model_id")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    PLACEMENT_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    FIRST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    MODEL_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    placement_id: str
    epoch: int
    owner: str
    first_sequence: int
    last_sequence: int
    model_id: str
    def __init__(self, request_id: _Optional[str] = ..., placement_id: _Optional[str] = ..., epoch: _Optional[int] = ..., owner: _Optional[str] = ..., first_sequence: _Optional[int] = ..., last_sequence: _Optional[int] = ..., model_id: _Optional[str] = ...) -> None: ...

class ReplyEvent(_message.Message):
    __slots__ = ("request_id", "event")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    EVENT_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    event: _generation_pb2.GenerationEvent
    def __init__(self, request_id: _Optional[str] = ..., event: _Optional[_Union[_generation_pb2.GenerationEvent, _Mapping]] = ...) -> None: ...

class ServeResponse(_message.Message):
    __slots__ = ("request", "cancel", "resume")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    request: ReplyRequest
    cancel: CancelReply
    resume: ResumeReply
    def __init__(self, request: _Optional[_Union[ReplyRequest, _Mapping]] = ..., cancel: _Optional[_Union[CancelReply, _Mapping]] = ..., resume: _Optional[_Union[ResumeReply, _Mapping]] = ...) -> None: ...

class ReplyRequest(_message.Message):
    __slots__ = ("request_id", "placement_id", "epoch", "generation", "owner", "keep_ms", "model_id")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    PLACEMENT_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    KEEP_MS_FIELD_NUMBER: _ClassVar[int]
    MODEL_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    placement_id: str
    epoch: int
    generation: _generation_pb2.Generation
    owner: str
    keep_ms: int
    model_id: str
    def __init__(self, request_id: _Optional[str] = ..., placement_id: _Optional[str] = ..., epoch: _Optional[int] = ..., generation: _Optional[_Union[_generation_pb2.Generation, _Mapping]] = ..., owner: _Optional[str] = ..., keep_ms: _Optional[int] = ..., model_id: _Optional[str] = ...) -> None: ...

class ResumeReply(_message.Message):
    __slots__ = ("request_id", "after_sequence")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    AFTER_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    after_sequence: int
    def __init__(self, request_id: _Optional[str] = ..., after_sequence: _Optional[int] = ...) -> None: ...

class CancelReply(_message.Message):
    __slots__ = ("request_id",)
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    def __init__(self, request_id: _Optional[str] = ...) -> None: ...
