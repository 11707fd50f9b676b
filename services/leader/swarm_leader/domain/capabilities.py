"""What a fellow can do, and what a place in a ring asks of it. Plain facts; rpc/ reads them from the wire."""

from collections.abc import Sequence
from dataclasses import dataclass

from swarm_leader.domain.records import Transport

WIRE_VERSION = 1  # frames of ring.v1 as the stages of this release write them
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


@dataclass(frozen=True)
class FellowFacts:
    """A connected fellow as the planner sees it.

    free_bytes: free on its best device, with what it would evict for a new model; None is unknown, never 0.
    compute_dtype: what that device computes in, as spelled in safetensors; "" is unknown.
    compute_capability: of that device when it is a CUDA card, as (major, minor); None is unknown, or no card.
    busy_with: models that load on it now and take every place it has for one, so that another would evict them.
    """

    fellow_id: str
    name: str
    free_bytes: int | None
    compute_dtype: str
    capabilities: Capabilities
    busy_with: str = ""
    compute_capability: tuple[int, int] | None = None


def find_wire_gap(ring: Sequence[FellowFacts]) -> tuple[FellowFacts, FellowFacts] | None:
    """Two fellows whose stages read no frame version in common: the newer first; None when all have one."""
    spoken = [(fellow.capabilities.wire, fellow) for fellow in ring if fellow.capabilities.wire is not None]
    if not spoken:
        return None
    newest, newer = max(spoken, key=lambda pair: pair[0].version_min)
    oldest, older = min(spoken, key=lambda pair: pair[0].version_max)
    return (newer, older) if newest.version_min > oldest.version_max else None


@dataclass(frozen=True)
class Lack:
    """A capability a fellow lacks for a place, and the consequence in words."""

    capability: str
    why: str


def find_lack(fellow: FellowFacts, model_type: str, stage_count: int, transport: Transport) -> Lack | None:
    """The first thing this fellow lacks to hold any stage of such a ring; None when it can."""
    has = fellow.capabilities
    if has.serve is None:
        return Lack("serve", "it does not serve models")
    if has.wire is None or not has.wire.version_min <= WIRE_VERSION <= has.wire.version_max:
        spoken = f"{has.wire.version_min}..{has.wire.version_max}" if has.wire else "none"
        return Lack("wire", f"it reads wire versions {spoken}, this ring speaks {WIRE_VERSION}")
    if has.serve.model_types and model_type not in has.serve.model_types:
        return Lack("serve.model_types", f"it builds {', '.join(has.serve.model_types)}, not {model_type}")
    if stage_count == 1 and not has.serve_one_stage:
        return Lack("serve_one_stage", "it cannot hold a whole model as one stage")
    if stage_count > 2 and (has.stage_count_max is None or has.stage_count_max < stage_count):
        longest = "two" if has.stage_count_max is None else str(has.stage_count_max)
        return Lack("serve_n_stage", f"it takes part in rings of at most {longest} stages, not {stage_count}")
    if stage_count > 1 and transport is Transport.P2P and not has.direct_link:
        return Lack("direct_link", "it takes no direct links, and the transport asked for is p2p")
    return None
