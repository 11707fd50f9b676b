from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TokenSet(_message.Message):
    __slots__ = ("only", "all_but", "bits")
    class IdList(_message.Message):
        __slots__ = ("ids",)
        IDS_FIELD_NUMBER: _ClassVar[int]
        ids: _containers.RepeatedScalarFieldContainer[int]
        def __init__(self, ids: _Optional[_Iterable[int]] = ...) -> None: ...
    ONLY_FIELD_NUMBER: _ClassVar[int]
    ALL_BUT_FIELD_NUMBER: _ClassVar[int]
    BITS_FIELD_NUMBER: _ClassVar[int]
    only: TokenSet.IdList
    all_but: TokenSet.IdList
    bits: bytes
    def __init__(self, only: _Optional[_Union[TokenSet.IdList, _Mapping]] = ..., all_but: _Optional[_Union[TokenSet.IdList, _Mapping]] = ..., bits: _Optional[bytes] = ...) -> None: ...
