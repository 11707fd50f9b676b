from silentswarm.core.v1 import access_pb2 as _access_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GetManifestRequest(_message.Message):
    __slots__ = ("model_id",)
    MODEL_ID_FIELD_NUMBER: _ClassVar[int]
    model_id: str
    def __init__(self, model_id: _Optional[str] = ...) -> None: ...

class GetManifestResponse(_message.Message):
    __slots__ = ("manifest_json", "manifest_sha256")
    MANIFEST_JSON_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_SHA256_FIELD_NUMBER: _ClassVar[int]
    manifest_json: bytes
    manifest_sha256: str
    def __init__(self, manifest_json: _Optional[bytes] = ..., manifest_sha256: _Optional[str] = ...) -> None: ...

class FetchRequest(_message.Message):
    __slots__ = ("model_id", "manifest_sha256", "items")
    MODEL_ID_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_SHA256_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    model_id: str
    manifest_sha256: str
    items: _containers.RepeatedCompositeFieldContainer[FetchItem]
    def __init__(self, model_id: _Optional[str] = ..., manifest_sha256: _Optional[str] = ..., items: _Optional[_Iterable[_Union[FetchItem, _Mapping]]] = ...) -> None: ...

class FetchItem(_message.Message):
    __slots__ = ("tensor", "file", "offset")
    TENSOR_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    tensor: str
    file: str
    offset: int
    def __init__(self, tensor: _Optional[str] = ..., file: _Optional[str] = ..., offset: _Optional[int] = ...) -> None: ...

class FetchChunk(_message.Message):
    __slots__ = ("item", "offset", "data")
    ITEM_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    item: int
    offset: int
    data: bytes
    def __init__(self, item: _Optional[int] = ..., offset: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...
