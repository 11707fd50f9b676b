from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from typing import ClassVar as _ClassVar

DESCRIPTOR: _descriptor.FileDescriptor

class Reason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REASON_UNSPECIFIED: _ClassVar[Reason]
    REASON_INTERNAL: _ClassVar[Reason]
    REASON_BAD_REQUEST: _ClassVar[Reason]
    REASON_MODEL_NOT_FOUND: _ClassVar[Reason]
    REASON_MODEL_NOT_READY: _ClassVar[Reason]
    REASON_SERVABLE_CORRUPT: _ClassVar[Reason]
    REASON_FELLOW_NOT_FOUND: _ClassVar[Reason]
    REASON_NO_FELLOW: _ClassVar[Reason]
    REASON_TOO_FEW_FELLOWS: _ClassVar[Reason]
    REASON_NOT_ENOUGH_MEMORY: _ClassVar[Reason]
    REASON_CAPABILITY_MISSING: _ClassVar[Reason]
    REASON_CONTEXT_TOO_LONG: _ClassVar[Reason]
    REASON_OVERLOADED: _ClassVar[Reason]
    REASON_DEADLINE: _ClassVar[Reason]
    REASON_CANCELLED: _ClassVar[Reason]
    REASON_STAGE_FAILED: _ClassVar[Reason]
    REASON_LINK_BROKEN: _ClassVar[Reason]
    REASON_FELLOW_LOST: _ClassVar[Reason]
    REASON_STALE_EPOCH: _ClassVar[Reason]
    REASON_BAD_FRAME: _ClassVar[Reason]
    REASON_LOAD_FAILED: _ClassVar[Reason]
    REASON_HASH_MISMATCH: _ClassVar[Reason]
    REASON_UNAUTHENTICATED: _ClassVar[Reason]
    REASON_PERMISSION_DENIED: _ClassVar[Reason]
    REASON_UNAVAILABLE: _ClassVar[Reason]
    REASON_CONFLICT: _ClassVar[Reason]
    REASON_DISK: _ClassVar[Reason]
    REASON_REPLY_NOT_FOUND: _ClassVar[Reason]
    REASON_SESSION_NOT_KEPT: _ClassVar[Reason]
REASON_UNSPECIFIED: Reason
REASON_INTERNAL: Reason
REASON_BAD_REQUEST: Reason
REASON_MODEL_NOT_FOUND: Reason
REASON_MODEL_NOT_READY: Reason
REASON_SERVABLE_CORRUPT: Reason
REASON_FELLOW_NOT_FOUND: Reason
REASON_NO_FELLOW: Reason
REASON_TOO_FEW_FELLOWS: Reason
REASON_NOT_ENOUGH_MEMORY: Reason
REASON_CAPABILITY_MISSING: Reason
REASON_CONTEXT_TOO_LONG: Reason
REASON_OVERLOADED: Reason
REASON_DEADLINE: Reason
REASON_CANCELLED: Reason
REASON_STAGE_FAILED: Reason
REASON_LINK_BROKEN: Reason
REASON_FELLOW_LOST: Reason
REASON_STALE_EPOCH: Reason
REASON_BAD_FRAME: Reason
REASON_LOAD_FAILED: Reason
REASON_HASH_MISMATCH: Reason
REASON_UNAUTHENTICATED: Reason
REASON_PERMISSION_DENIED: Reason
REASON_UNAVAILABLE: Reason
REASON_CONFLICT: Reason
REASON_DISK: Reason
REASON_REPLY_NOT_FOUND: Reason
REASON_SESSION_NOT_KEPT: Reason
