from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class RingKeys(_message.Message):
    __slots__ = ("next_secret", "previous_secret", "next_name", "previous_name", "sender_ticket", "receiver_ticket")
    NEXT_SECRET_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_SECRET_FIELD_NUMBER: _ClassVar[int]
    NEXT_NAME_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_NAME_FIELD_NUMBER: _ClassVar[int]
    SENDER_TICKET_FIELD_NUMBER: _ClassVar[int]
    RECEIVER_TICKET_FIELD_NUMBER: _ClassVar[int]
    next_secret: bytes
    previous_secret: bytes
    next_name: str
    previous_name: str
    sender_ticket: bytes
    receiver_ticket: bytes
    def __init__(self, next_secret: _Optional[bytes] = ..., previous_secret: _Optional[bytes] = ..., next_name: _Optional[str] = ..., previous_name: _Optional[str] = ..., sender_ticket: _Optional[bytes] = ..., receiver_ticket: _Optional[bytes] = ...) -> None: ...

class PeerTrust(_message.Message):
    __slots__ = ("roots", "name")
    ROOTS_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    roots: bytes
    name: str
    def __init__(self, roots: _Optional[bytes] = ..., name: _Optional[str] = ...) -> None: ...
