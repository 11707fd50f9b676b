from google.api import annotations_pb2 as _annotations_pb2
from silentswarm.core.v1 import access_pb2 as _access_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class GetRootsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetRootsResponse(_message.Message):
    __slots__ = ("roots", "sha256")
    ROOTS_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    roots: bytes
    sha256: str
    def __init__(self, roots: _Optional[bytes] = ..., sha256: _Optional[str] = ...) -> None: ...

class IssueCertificateRequest(_message.Message):
    __slots__ = ("certificate_request", "names")
    CERTIFICATE_REQUEST_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    certificate_request: bytes
    names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, certificate_request: _Optional[bytes] = ..., names: _Optional[_Iterable[str]] = ...) -> None: ...

class IssueCertificateResponse(_message.Message):
    __slots__ = ("certificate",)
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    certificate: bytes
    def __init__(self, certificate: _Optional[bytes] = ...) -> None: ...
