from silentswarm.core.v1 import access_pb2 as _access_pb2
from silentswarm.core.v1 import generation_pb2 as _generation_pb2
from silentswarm.core.v1 import reason_pb2 as _reason_pb2
from silentswarm.core.v1 import tensor_pb2 as _tensor_pb2
from silentswarm.core.v1 import token_set_pb2 as _token_set_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class LinkRequest(_message.Message):
    __slots__ = ("hello", "batch")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    batch: FrameBatch
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., batch: _Optional[_Union[FrameBatch, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("wire_version", "placement_id", "epoch", "from_stage", "to_stage", "proof")
    WIRE_VERSION_FIELD_NUMBER: _ClassVar[int]
    PLACEMENT_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    FROM_STAGE_FIELD_NUMBER: _ClassVar[int]
    TO_STAGE_FIELD_NUMBER: _ClassVar[int]
    PROOF_FIELD_NUMBER: _ClassVar[int]
    wire_version: int
    placement_id: str
    epoch: int
    from_stage: int
    to_stage: int
    proof: bytes
    def __init__(self, wire_version: _Optional[int] = ..., placement_id: _Optional[str] = ..., epoch: _Optional[int] = ..., from_stage: _Optional[int] = ..., to_stage: _Optional[int] = ..., proof: _Optional[bytes] = ...) -> None: ...

class LinkResponse(_message.Message):
    __slots__ = ("welcome", "beat")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    BEAT_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    beat: Beat
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., beat: _Optional[_Union[Beat, _Mapping]] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("frame_bytes_max", "proof")
    FRAME_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    PROOF_FIELD_NUMBER: _ClassVar[int]
    frame_bytes_max: int
    proof: bytes
    def __init__(self, frame_bytes_max: _Optional[int] = ..., proof: _Optional[bytes] = ...) -> None: ...

class FrameBatch(_message.Message):
    __slots__ = ("epoch", "frames", "beat")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    FRAMES_FIELD_NUMBER: _ClassVar[int]
    BEAT_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    frames: _containers.RepeatedCompositeFieldContainer[Frame]
    beat: Beat
    def __init__(self, epoch: _Optional[int] = ..., frames: _Optional[_Iterable[_Union[Frame, _Mapping]]] = ..., beat: _Optional[_Union[Beat, _Mapping]] = ...) -> None: ...

class Beat(_message.Message):
    __slots__ = ("sequence", "interval_ms")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    interval_ms: int
    def __init__(self, sequence: _Optional[int] = ..., interval_ms: _Optional[int] = ...) -> None: ...

class Frame(_message.Message):
    __slots__ = ("session", "pos", "hidden", "sampled", "end", "failure", "traces")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    POS_FIELD_NUMBER: _ClassVar[int]
    HIDDEN_FIELD_NUMBER: _ClassVar[int]
    SAMPLED_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    TRACES_FIELD_NUMBER: _ClassVar[int]
    session: int
    pos: int
    hidden: Hidden
    sampled: Sampled
    end: End
    failure: Failure
    traces: _containers.RepeatedCompositeFieldContainer[Trace]
    def __init__(self, session: _Optional[int] = ..., pos: _Optional[int] = ..., hidden: _Optional[_Union[Hidden, _Mapping]] = ..., sampled: _Optional[_Union[Sampled, _Mapping]] = ..., end: _Optional[_Union[End, _Mapping]] = ..., failure: _Optional[_Union[Failure, _Mapping]] = ..., traces: _Optional[_Iterable[_Union[Trace, _Mapping]]] = ...) -> None: ...

class Hidden(_message.Message):
    __slots__ = ("hidden", "sampling", "sample", "probe", "hold", "reserved_tokens", "allowed", "prompt_ids", "coded", "adapter", "reply_key", "resumes", "rebuilds", "drawn_ids")
    HIDDEN_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_FIELD_NUMBER: _ClassVar[int]
    PROBE_FIELD_NUMBER: _ClassVar[int]
    HOLD_FIELD_NUMBER: _ClassVar[int]
    RESERVED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    ALLOWED_FIELD_NUMBER: _ClassVar[int]
    PROMPT_IDS_FIELD_NUMBER: _ClassVar[int]
    CODED_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_FIELD_NUMBER: _ClassVar[int]
    REPLY_KEY_FIELD_NUMBER: _ClassVar[int]
    RESUMES_FIELD_NUMBER: _ClassVar[int]
    REBUILDS_FIELD_NUMBER: _ClassVar[int]
    DRAWN_IDS_FIELD_NUMBER: _ClassVar[int]
    hidden: _tensor_pb2.Tensor
    sampling: _generation_pb2.Sampling
    sample: bool
    probe: bool
    hold: Hold
    reserved_tokens: int
    allowed: _token_set_pb2.TokenSet
    prompt_ids: _containers.RepeatedScalarFieldContainer[int]
    coded: _tensor_pb2.CodedTensor
    adapter: str
    reply_key: bytes
    resumes: bool
    rebuilds: bool
    drawn_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, hidden: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., sampling: _Optional[_Union[_generation_pb2.Sampling, _Mapping]] = ..., sample: _Optional[bool] = ..., probe: _Optional[bool] = ..., hold: _Optional[_Union[Hold, _Mapping]] = ..., reserved_tokens: _Optional[int] = ..., allowed: _Optional[_Union[_token_set_pb2.TokenSet, _Mapping]] = ..., prompt_ids: _Optional[_Iterable[int]] = ..., coded: _Optional[_Union[_tensor_pb2.CodedTensor, _Mapping]] = ..., adapter: _Optional[str] = ..., reply_key: _Optional[bytes] = ..., resumes: _Optional[bool] = ..., rebuilds: _Optional[bool] = ..., drawn_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class Hold(_message.Message):
    __slots__ = ("ids", "until_pos")
    IDS_FIELD_NUMBER: _ClassVar[int]
    UNTIL_POS_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[int]
    until_pos: int
    def __init__(self, ids: _Optional[_Iterable[int]] = ..., until_pos: _Optional[int] = ...) -> None: ...

class Sampled(_message.Message):
    __slots__ = ("tokens", "likelihoods")
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    LIKELIHOODS_FIELD_NUMBER: _ClassVar[int]
    tokens: _containers.RepeatedScalarFieldContainer[int]
    likelihoods: _containers.RepeatedCompositeFieldContainer[Likelihood]
    def __init__(self, tokens: _Optional[_Iterable[int]] = ..., likelihoods: _Optional[_Iterable[_Union[Likelihood, _Mapping]]] = ...) -> None: ...

class Likelihood(_message.Message):
    __slots__ = ("logprob", "top_ids", "top_logprobs")
    LOGPROB_FIELD_NUMBER: _ClassVar[int]
    TOP_IDS_FIELD_NUMBER: _ClassVar[int]
    TOP_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    logprob: float
    top_ids: _containers.RepeatedScalarFieldContainer[int]
    top_logprobs: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, logprob: _Optional[float] = ..., top_ids: _Optional[_Iterable[int]] = ..., top_logprobs: _Optional[_Iterable[float]] = ...) -> None: ...

class End(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Failure(_message.Message):
    __slots__ = ("reason", "message", "stage_index", "metadata")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    STAGE_INDEX_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    reason: _reason_pb2.Reason
    message: str
    stage_index: int
    metadata: _containers.ScalarMap[str, str]
    def __init__(self, reason: _Optional[_Union[_reason_pb2.Reason, str]] = ..., message: _Optional[str] = ..., stage_index: _Optional[int] = ..., metadata: _Optional[_Mapping[str, str]] = ...) -> None: ...

class Trace(_message.Message):
    __slots__ = ("stage_index", "compute_us", "layer_start", "layer_stop", "received_bytes", "wait_us", "sample_us")
    STAGE_INDEX_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_US_FIELD_NUMBER: _ClassVar[int]
    LAYER_START_FIELD_NUMBER: _ClassVar[int]
    LAYER_STOP_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_BYTES_FIELD_NUMBER: _ClassVar[int]
    WAIT_US_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_US_FIELD_NUMBER: _ClassVar[int]
    stage_index: int
    compute_us: int
    layer_start: int
    layer_stop: int
    received_bytes: int
    wait_us: int
    sample_us: int
    def __init__(self, stage_index: _Optional[int] = ..., compute_us: _Optional[int] = ..., layer_start: _Optional[int] = ..., layer_stop: _Optional[int] = ..., received_bytes: _Optional[int] = ..., wait_us: _Optional[int] = ..., sample_us: _Optional[int] = ...) -> None: ...
