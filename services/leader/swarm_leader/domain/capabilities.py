"""What a connected fellow is and can do, as far as a plan depends on it. Plain facts; rpc/ reads them from the wire."""

from collections.abc import Sequence
from dataclasses import dataclass

from swarm_leader.domain.device_facts import DeviceFacts, Room, sum_known

UNLIMITED = 2**31 - 1  # a declared capability whose parameter does not say


@dataclass(frozen=True)
class WireRange:
    """Frame versions a fellow's stages read and write, both ends included. dtypes: empty does not say."""

    version_min: int
    version_max: int
    dtypes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Serve:
    """A fellow that serves.

    model_types: transformers types its stages build; empty does not say. prefill_chunk_tokens: prompt tokens per piece
    when it holds the first stage; 0 does not say, 2**32 - 1 sends a prompt whole.
    """

    loaded_models_max: int = 1
    model_types: tuple[str, ...] = ()
    prefill_chunk_tokens: int = 0


@dataclass(frozen=True)
class Capabilities:
    """The declared capabilities that a placement depends on. None, False, 0 and nothing: not declared.

    stage_count_max: longest ring it takes any place in (serve_n_stage).
    in_flight_max: most sessions it holds at once (serve_concurrent).
    quantizations: methods by which it holds linear layers (serve_quantized, serve_int4_fast). codecs: of links.
    adapters_max: most adapters of one stage. storage_dtypes: types it holds weights in beside the computed one.
    """

    wire: WireRange | None = None
    ping: bool = False
    serve: Serve | None = None
    serve_one_stage: bool = False
    stage_count_max: int | None = None
    in_flight_max: int | None = None
    direct_link: bool = False
    serve_rewire: bool = False
    serve_kv_budget: bool = False
    serve_4bit_rows: bool = False
    serve_sampling: bool = False
    link_keys: bool = False
    quantizations: tuple[str, ...] = ()
    codecs: tuple[str, ...] = ()
    adapters_max: int = 0
    serve_devices: bool = False
    storage_dtypes: tuple[str, ...] = ()
    maintenance: bool = False
    serve_resume: bool = False
    serve_keep: bool = False
    check: bool = False
    cover: bool = False
    logs: bool = False


@dataclass(frozen=True)
class LinkTime:
    """There and back between the stages of two fellows, as beats on a link of theirs measured it."""

    peer_id: str
    is_relayed: bool
    round_trip_ms: float


@dataclass(frozen=True)
class FellowFacts:
    """A connected fellow as the planner sees it.

    free_bytes: free on its best device, with what it would evict for a new model; None is unknown, never 0.
    compute_dtype: what its stage would compute in, as spelled in safetensors; "" is unknown.
    compute_capability: of the oldest CUDA card its stage would be on, as (major, minor); None is unknown, or no card.
    busy_with: models that load on it now and take every place it has for one, so that another would evict them.
    makes_room_of: models that are served on it and would be evicted for a new one.
    devices: those a stage of it would be on, in its own order: its best one, or with serve_devices all its cards.
    leader_round_trip_ms, leader_down_bytes_per_s, leader_up_bytes_per_s: to the leader and back, from it, to it; None
    is unknown. link_times: to other fellows, where a ring measured them.
    """

    fellow_id: str
    name: str
    free_bytes: int | None
    compute_dtype: str
    capabilities: Capabilities
    busy_with: str = ""
    makes_room_of: tuple[str, ...] = ()
    compute_capability: tuple[int, int] | None = None
    devices: tuple[DeviceFacts, ...] = ()
    leader_round_trip_ms: float | None = None
    leader_down_bytes_per_s: float | None = None
    leader_up_bytes_per_s: float | None = None
    link_times: tuple[LinkTime, ...] = ()

    @property
    def room(self) -> Room:
        """Free bytes of each device a stage would be on."""
        return tuple(device.free_bytes for device in self.devices) or (self.free_bytes,)

    @property
    def room_bytes(self) -> int | None:
        """Free on all of them together; None when one is unknown."""
        return sum_known(self.room)


def find_wire_gap(ring: Sequence[FellowFacts]) -> tuple[FellowFacts, FellowFacts] | None:
    """Two fellows whose stages read no frame version in common: the newer first; None when all have one."""
    spoken = [(fellow.capabilities.wire, fellow) for fellow in ring if fellow.capabilities.wire is not None]
    if not spoken:
        return None
    newest, newer = max(spoken, key=lambda pair: pair[0].version_min)
    oldest, older = min(spoken, key=lambda pair: pair[0].version_max)
    return (newer, older) if newest.version_min > oldest.version_max else None
