from google.api import annotations_pb2 as _annotations_pb2
from silentswarm.core.v1 import access_pb2 as _access_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GetPoolMetricsRequest(_message.Message):
    __slots__ = ("pool_id",)
    POOL_ID_FIELD_NUMBER: _ClassVar[int]
    pool_id: str
    def __init__(self, pool_id: _Optional[str] = ...) -> None: ...

class WatchPoolMetricsRequest(_message.Message):
    __slots__ = ("pool_id", "interval_s")
    POOL_ID_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_S_FIELD_NUMBER: _ClassVar[int]
    pool_id: str
    interval_s: float
    def __init__(self, pool_id: _Optional[str] = ..., interval_s: _Optional[float] = ...) -> None: ...

class PoolMetrics(_message.Message):
    __slots__ = ("pool_id", "window_s", "nodes", "connected", "availability", "leader_round_trip_ms", "serving")
    POOL_ID_FIELD_NUMBER: _ClassVar[int]
    WINDOW_S_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_FIELD_NUMBER: _ClassVar[int]
    AVAILABILITY_FIELD_NUMBER: _ClassVar[int]
    LEADER_ROUND_TRIP_MS_FIELD_NUMBER: _ClassVar[int]
    SERVING_FIELD_NUMBER: _ClassVar[int]
    pool_id: str
    window_s: float
    nodes: _containers.RepeatedCompositeFieldContainer[NodeMetrics]
    connected: int
    availability: float
    leader_round_trip_ms: float
    serving: ServingMetrics
    def __init__(self, pool_id: _Optional[str] = ..., window_s: _Optional[float] = ..., nodes: _Optional[_Iterable[_Union[NodeMetrics, _Mapping]]] = ..., connected: _Optional[int] = ..., availability: _Optional[float] = ..., leader_round_trip_ms: _Optional[float] = ..., serving: _Optional[_Union[ServingMetrics, _Mapping]] = ...) -> None: ...

class ServingMetrics(_message.Message):
    __slots__ = ("completed", "failed", "tokens_per_s", "first_token_ms", "first_token_p95_ms", "queue_ms")
    COMPLETED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    TOKENS_PER_S_FIELD_NUMBER: _ClassVar[int]
    FIRST_TOKEN_MS_FIELD_NUMBER: _ClassVar[int]
    FIRST_TOKEN_P95_MS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_MS_FIELD_NUMBER: _ClassVar[int]
    completed: int
    failed: int
    tokens_per_s: float
    first_token_ms: float
    first_token_p95_ms: float
    queue_ms: float
    def __init__(self, completed: _Optional[int] = ..., failed: _Optional[int] = ..., tokens_per_s: _Optional[float] = ..., first_token_ms: _Optional[float] = ..., first_token_p95_ms: _Optional[float] = ..., queue_ms: _Optional[float] = ...) -> None: ...

class NodeMetrics(_message.Message):
    __slots__ = ("fellow_id", "fellow_name", "state", "availability", "grade", "leader_round_trip_ms", "leader_round_trip_p95_ms", "peer_round_trip_ms", "temperature_c", "power_w", "busy_share", "cpu_busy_share", "memory_free_bytes", "disk_free_bytes", "reconnects", "stage_crashes", "out_of_memory", "errors", "slowdown", "observed_s")
    FELLOW_ID_FIELD_NUMBER: _ClassVar[int]
    FELLOW_NAME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    AVAILABILITY_FIELD_NUMBER: _ClassVar[int]
    GRADE_FIELD_NUMBER: _ClassVar[int]
    LEADER_ROUND_TRIP_MS_FIELD_NUMBER: _ClassVar[int]
    LEADER_ROUND_TRIP_P95_MS_FIELD_NUMBER: _ClassVar[int]
    PEER_ROUND_TRIP_MS_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_C_FIELD_NUMBER: _ClassVar[int]
    POWER_W_FIELD_NUMBER: _ClassVar[int]
    BUSY_SHARE_FIELD_NUMBER: _ClassVar[int]
    CPU_BUSY_SHARE_FIELD_NUMBER: _ClassVar[int]
    MEMORY_FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    DISK_FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    RECONNECTS_FIELD_NUMBER: _ClassVar[int]
    STAGE_CRASHES_FIELD_NUMBER: _ClassVar[int]
    OUT_OF_MEMORY_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    SLOWDOWN_FIELD_NUMBER: _ClassVar[int]
    OBSERVED_S_FIELD_NUMBER: _ClassVar[int]
    fellow_id: str
    fellow_name: str
    state: str
    availability: float
    grade: Grade
    leader_round_trip_ms: float
    leader_round_trip_p95_ms: float
    peer_round_trip_ms: float
    temperature_c: float
    power_w: float
    busy_share: float
    cpu_busy_share: float
    memory_free_bytes: int
    disk_free_bytes: int
    reconnects: int
    stage_crashes: int
    out_of_memory: int
    errors: int
    slowdown: float
    observed_s: float
    def __init__(self, fellow_id: _Optional[str] = ..., fellow_name: _Optional[str] = ..., state: _Optional[str] = ..., availability: _Optional[float] = ..., grade: _Optional[_Union[Grade, _Mapping]] = ..., leader_round_trip_ms: _Optional[float] = ..., leader_round_trip_p95_ms: _Optional[float] = ..., peer_round_trip_ms: _Optional[float] = ..., temperature_c: _Optional[float] = ..., power_w: _Optional[float] = ..., busy_share: _Optional[float] = ..., cpu_busy_share: _Optional[float] = ..., memory_free_bytes: _Optional[int] = ..., disk_free_bytes: _Optional[int] = ..., reconnects: _Optional[int] = ..., stage_crashes: _Optional[int] = ..., out_of_memory: _Optional[int] = ..., errors: _Optional[int] = ..., slowdown: _Optional[float] = ..., observed_s: _Optional[float] = ...) -> None: ...

class Grade(_message.Message):
    __slots__ = ("band", "score", "reasons")
    BAND_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    REASONS_FIELD_NUMBER: _ClassVar[int]
    band: str
    score: float
    reasons: _containers.RepeatedCompositeFieldContainer[GradeReason]
    def __init__(self, band: _Optional[str] = ..., score: _Optional[float] = ..., reasons: _Optional[_Iterable[_Union[GradeReason, _Mapping]]] = ...) -> None: ...

class GradeReason(_message.Message):
    __slots__ = ("signal", "points", "words")
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    POINTS_FIELD_NUMBER: _ClassVar[int]
    WORDS_FIELD_NUMBER: _ClassVar[int]
    signal: str
    points: float
    words: str
    def __init__(self, signal: _Optional[str] = ..., points: _Optional[float] = ..., words: _Optional[str] = ...) -> None: ...

class GetMetricsHistoryRequest(_message.Message):
    __slots__ = ("pool_id", "metric", "fellow_id", "from_s", "to_s", "resolution")
    POOL_ID_FIELD_NUMBER: _ClassVar[int]
    METRIC_FIELD_NUMBER: _ClassVar[int]
    FELLOW_ID_FIELD_NUMBER: _ClassVar[int]
    FROM_S_FIELD_NUMBER: _ClassVar[int]
    TO_S_FIELD_NUMBER: _ClassVar[int]
    RESOLUTION_FIELD_NUMBER: _ClassVar[int]
    pool_id: str
    metric: str
    fellow_id: str
    from_s: int
    to_s: int
    resolution: str
    def __init__(self, pool_id: _Optional[str] = ..., metric: _Optional[str] = ..., fellow_id: _Optional[str] = ..., from_s: _Optional[int] = ..., to_s: _Optional[int] = ..., resolution: _Optional[str] = ...) -> None: ...

class MetricsHistory(_message.Message):
    __slots__ = ("pool_id", "metric", "resolution", "points")
    POOL_ID_FIELD_NUMBER: _ClassVar[int]
    METRIC_FIELD_NUMBER: _ClassVar[int]
    RESOLUTION_FIELD_NUMBER: _ClassVar[int]
    POINTS_FIELD_NUMBER: _ClassVar[int]
    pool_id: str
    metric: str
    resolution: str
    points: _containers.RepeatedCompositeFieldContainer[MetricPoint]
    def __init__(self, pool_id: _Optional[str] = ..., metric: _Optional[str] = ..., resolution: _Optional[str] = ..., points: _Optional[_Iterable[_Union[MetricPoint, _Mapping]]] = ...) -> None: ...

class MetricPoint(_message.Message):
    __slots__ = ("at_s", "figure")
    AT_S_FIELD_NUMBER: _ClassVar[int]
    FIGURE_FIELD_NUMBER: _ClassVar[int]
    at_s: int
    figure: float
    def __init__(self, at_s: _Optional[int] = ..., figure: _Optional[float] = ...) -> None: ...

class ListPoolEventsRequest(_message.Message):
    __slots__ = ("pool_id", "limit", "before_sequence", "fellow_id")
    POOL_ID_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    BEFORE_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    FELLOW_ID_FIELD_NUMBER: _ClassVar[int]
    pool_id: str
    limit: int
    before_sequence: int
    fellow_id: str
    def __init__(self, pool_id: _Optional[str] = ..., limit: _Optional[int] = ..., before_sequence: _Optional[int] = ..., fellow_id: _Optional[str] = ...) -> None: ...

class ListPoolEventsResponse(_message.Message):
    __slots__ = ("events",)
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[PoolEvent]
    def __init__(self, events: _Optional[_Iterable[_Union[PoolEvent, _Mapping]]] = ...) -> None: ...

class PoolEvent(_message.Message):
    __slots__ = ("sequence", "at_s", "fellow_id", "fellow_name", "kind", "words")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    AT_S_FIELD_NUMBER: _ClassVar[int]
    FELLOW_ID_FIELD_NUMBER: _ClassVar[int]
    FELLOW_NAME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    WORDS_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    at_s: float
    fellow_id: str
    fellow_name: str
    kind: str
    words: str
    def __init__(self, sequence: _Optional[int] = ..., at_s: _Optional[float] = ..., fellow_id: _Optional[str] = ..., fellow_name: _Optional[str] = ..., kind: _Optional[str] = ..., words: _Optional[str] = ...) -> None: ...
