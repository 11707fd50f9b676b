"""What the leader remembers over a restart. Plain facts; the store writes them, flows decide them."""

from dataclasses import dataclass, field
from enum import StrEnum

from swarm_core.quantization import NONE

from swarm_leader.domain.holding import AdapterRef, DeviceRun, InnerCodec

MAIN_POOL = "main"  # of machines that name none


class PlacementState(StrEnum):
    """Where a placement stands; the same words as leader.v1.PlacementState."""

    PLANNED = "planned"
    LOADING = "loading"
    WIRING = "wiring"
    READY = "ready"
    IDLE = "idle"
    FAILED = "failed"
    UNLOADED = "unloaded"
    RECOVERING = "recovering"

    @property
    def holds_memory(self) -> bool:
        """Fellows hold, or are about to hold, stages of it."""
        return self in (PlacementState.LOADING, PlacementState.WIRING, PlacementState.READY, PlacementState.RECOVERING)


class Transport(StrEnum):
    """How the stages of a ring reach each other."""

    AUTO = "auto"
    TUNNEL = "tunnel"
    P2P = "p2p"
    MESH = "mesh"

    @property
    def demands_direct(self) -> bool:
        """Whether a ring without direct links is none at all."""
        return self in (Transport.P2P, Transport.MESH)


class Route(StrEnum):
    """One way from a stage to the next."""

    UNKNOWN = "unknown"
    DIRECT = "direct"
    RELAY = "relay"
    LOCAL = "local"


@dataclass(frozen=True)
class FellowRecord:
    """One machine, for good. hardware and capabilities: serialised core.v1 messages, opaque to the domain's store.

    credential_sha256: of its node credential, hex; "" when it has none. credential_confirmed: it presented it once, so
    it has kept it. joined_by: id of the join token that let it in, "" for none. pool: the one it joined.

    draining: a person wants it emptied.
    """

    fellow_id: str
    identity: str
    name: str
    version: str
    hardware: bytes
    capabilities: bytes
    joined_s: float
    deleted: bool = False
    credential_sha256: str = ""
    credential_confirmed: bool = False
    joined_by: str = ""
    draining: bool = False
    pool: str = MAIN_POOL


@dataclass(frozen=True)
class TokenUsage:
    """What a token used. requests: replies that began; cancelled: those whose caller left before the end."""

    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cancelled: int = 0

    def __add__(self, more: "TokenUsage") -> "TokenUsage":
        return TokenUsage(
            self.requests + more.requests,
            self.prompt_tokens + more.prompt_tokens,
            self.completion_tokens + more.completion_tokens,
            self.cancelled + more.cancelled,
        )


@dataclass(frozen=True)
class ApiTokenRecord:
    """A token of a person or a program. Times are Unix seconds; None: never. scopes: lowest first.

    digest: SHA-256 of the secret, hex; the secret itself is nowhere. by_leader: the leader made it by itself, so that
    somebody can get in; tokens are never asked for because of it.
    """

    token_id: str
    digest: str
    label: str
    scopes: tuple[str, ...]
    created_s: int
    expires_s: int | None = None
    revoked_s: int | None = None
    last_used_s: int | None = None
    by_leader: bool = False
    usage: TokenUsage = TokenUsage()


@dataclass(frozen=True)
class JoinTokenRecord:
    """A token by which machines join. uses_left None: any number. digest: SHA-256 of the secret, hex."""

    join_token_id: str
    digest: str
    label: str
    created_s: int
    expires_s: int
    uses_left: int | None
    used: int = 0
    revoked_s: int | None = None


@dataclass(frozen=True)
class StageRecord:
    """One stage of a placement: which fellow, which layers, what it was planned to take.

    devices: its layers on the fellow's devices, in order; empty when the fellow named no device. codec_in, codec_out:
    how the hidden state is coded on the links, "" not at all. quantization, weight_bytes_measured: as its fellow
    reported them after the load; "" and None before. predicted_ms: compute of one token; None is unknown.
    """

    stage_index: int
    fellow_id: str
    layer_start: int
    layer_stop: int
    weight_bytes: int
    kv_bytes: int
    working_bytes: int
    free_bytes: int | None
    route: Route = Route.UNKNOWN
    state: str = "planned"  # "planned", "loading", "loaded", "lost", "ended"
    devices: tuple[DeviceRun, ...] = ()
    codec_in: str = ""
    codec_out: str = ""
    inner_codecs: tuple[InnerCodec, ...] = ()
    quantization: str = ""
    weight_bytes_measured: int | None = None
    predicted_ms: float | None = None


@dataclass(frozen=True)
class PlacementRecord:
    """One load of a model, over its whole life. Every write of a state also appends to the log.

    batch_max: sessions of one decode step on every stage; 0 is no cap. quantization: how linear layers are planned to
    be held; quantization_asked: what the load asked for, or the model's default, "" before that was kept.
    storage_dtype: of full-precision weights, "" is dtype. weights_model_id: whose weights these are, when the model is
    an adapter of it; manifest_sha256 is of that one. codec: as the load asked for.
    """

    placement_id: str
    model_id: str
    manifest_sha256: str
    epoch: int
    state: PlacementState
    reason: str
    transport: Transport
    dtype: str
    context_tokens: int
    kv_tokens: int
    in_flight_max: int
    created_s: float
    stages: tuple[StageRecord, ...]
    notes: tuple[str, ...] = field(default=())
    batch_max: int = 0
    quantization: str = NONE
    quantization_asked: str = ""
    storage_dtype: str = ""
    weights_model_id: str = ""
    adapters: tuple[AdapterRef, ...] = ()
    codec: str = ""
    predicted_tokens_per_s: float | None = None


@dataclass(frozen=True)
class LedgerEvent:
    """One line of the append-only log."""

    sequence: int
    placement_id: str
    epoch: int
    at_s: float
    what: str
