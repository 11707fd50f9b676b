from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AdapterUse(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ADAPTER_USE_UNSPECIFIED: _ClassVar[AdapterUse]
    ADAPTER_USE_CHOSEN: _ClassVar[AdapterUse]
    ADAPTER_USE_ALWAYS: _ClassVar[AdapterUse]
    ADAPTER_USE_MERGED: _ClassVar[AdapterUse]
ADAPTER_USE_UNSPECIFIED: AdapterUse
ADAPTER_USE_CHOSEN: AdapterUse
ADAPTER_USE_ALWAYS: AdapterUse
ADAPTER_USE_MERGED: AdapterUse

class Quantization(_message.Message):
    __slots__ = ("method", "bits", "backend")
    METHOD_FIELD_NUMBER: _ClassVar[int]
    BITS_FIELD_NUMBER: _ClassVar[int]
    BACKEND_FIELD_NUMBER: _ClassVar[int]
    method: str
    bits: int
    backend: str
    def __init__(self, method: _Optional[str] = ..., bits: _Optional[int] = ..., backend: _Optional[str] = ...) -> None: ...

class AdapterRef(_message.Message):
    __slots__ = ("model_id", "manifest_sha256", "use")
    MODEL_ID_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_SHA256_FIELD_NUMBER: _ClassVar[int]
    USE_FIELD_NUMBER: _ClassVar[int]
    model_id: str
    manifest_sha256: str
    use: AdapterUse
    def __init__(self, model_id: _Optional[str] = ..., manifest_sha256: _Optional[str] = ..., use: _Optional[_Union[AdapterUse, str]] = ...) -> None: ...

class InnerCodec(_message.Message):
    __slots__ = ("layer", "codec")
    LAYER_FIELD_NUMBER: _ClassVar[int]
    CODEC_FIELD_NUMBER: _ClassVar[int]
    layer: int
    codec: str
    def __init__(self, layer: _Optional[int] = ..., codec: _Optional[str] = ...) -> None: ...

class DeviceRun(_message.Message):
    __slots__ = ("device_index", "layer_start", "layer_stop", "weight_bytes", "kv_bytes", "working_bytes", "free_bytes")
    DEVICE_INDEX_FIELD_NUMBER: _ClassVar[int]
    LAYER_START_FIELD_NUMBER: _ClassVar[int]
    LAYER_STOP_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_BYTES_FIELD_NUMBER: _ClassVar[int]
    KV_BYTES_FIELD_NUMBER: _ClassVar[int]
    WORKING_BYTES_FIELD_NUMBER: _ClassVar[int]
    FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    device_index: int
    layer_start: int
    layer_stop: int
    weight_bytes: int
    kv_bytes: int
    working_bytes: int
    free_bytes: int
    def __init__(self, device_index: _Optional[int] = ..., layer_start: _Optional[int] = ..., layer_stop: _Optional[int] = ..., weight_bytes: _Optional[int] = ..., kv_bytes: _Optional[int] = ..., working_bytes: _Optional[int] = ..., free_bytes: _Optional[int] = ...) -> None: ...
