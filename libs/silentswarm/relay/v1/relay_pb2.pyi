from silentswarm.core.v1 import access_pb2 as _access_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Role(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ROLE_UNSPECIFIED: _ClassVar[Role]
    ROLE_SENDER: _ClassVar[Role]
    ROLE_RECEIVER: _ClassVar[Role]
ROLE_UNSPECIFIED: Role
ROLE_SENDER: Role
ROLE_RECEIVER: Role

class Attach(_message.Message):
    __slots__ = ("lane", "channel", "epoch", "role", "bundles", "ticket")
    LANE_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    BUNDLES_FIELD_NUMBER: _ClassVar[int]
    TICKET_FIELD_NUMBER: _ClassVar[int]
    lane: str
    channel: str
    epoch: int
    role: Role
    bundles: bool
    ticket: bytes
    def __init__(self, lane: _Optional[str] = ..., channel: _Optional[str] = ..., epoch: _Optional[int] = ..., role: _Optional[_Union[Role, str]] = ..., bundles: _Optional[bool] = ..., ticket: _Optional[bytes] = ...) -> None: ...

class AttachRequest(_message.Message):
    __slots__ = ("attach", "payload", "more")
    ATTACH_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    attach: Attach
    payload: bytes
    more: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, attach: _Optional[_Union[Attach, _Mapping]] = ..., payload: _Optional[bytes] = ..., more: _Optional[_Iterable[bytes]] = ...) -> None: ...

class AttachResponse(_message.Message):
    __slots__ = ("attached", "payload", "more")
    ATTACHED_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    attached: Attached
    payload: bytes
    more: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, attached: _Optional[_Union[Attached, _Mapping]] = ..., payload: _Optional[bytes] = ..., more: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Attached(_message.Message):
    __slots__ = ("payload_bytes_max", "bundles")
    PAYLOAD_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    BUNDLES_FIELD_NUMBER: _ClassVar[int]
    payload_bytes_max: int
    bundles: bool
    def __init__(self, payload_bytes_max: _Optional[int] = ..., bundles: _Optional[bool] = ...) -> None: ...
