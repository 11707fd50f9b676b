"""What a place in a ring asks of a fellow, and the first thing it lacks. Pure."""

from dataclasses import dataclass

from swarm_core.quantization import INT4_FAST, NONE

from swarm_leader.domain.capabilities import FellowFacts
from swarm_leader.domain.records import Transport

WIRE_VERSION = 1  # frames of ring.v1 as the stages of this release write them


@dataclass(frozen=True)
class RingNeeds:
    """What every fellow of a ring must be able to do. codecs: of its links, and of boundaries inside its stages.

    storage_dtype: what full-precision weights are held in; "" is what is computed in. adapters: names, for messages.
    """

    model_type: str
    stage_count: int
    transport: Transport
    quantization: str = NONE
    storage_dtype: str = ""
    adapters: tuple[str, ...] = ()
    codecs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Lack:
    """A capability a fellow lacks for a place, and the consequence in words."""

    capability: str
    why: str


def find_lack(fellow: FellowFacts, needs: RingNeeds) -> Lack | None:
    """The first thing this fellow lacks to hold any stage of such a ring; None when it can."""
    return _find_ring_lack(fellow, needs) or _find_weights_lack(fellow, needs)


def quantization_capability(method: str) -> str:
    """The capability that declares a method."""
    return "serve_int4_fast" if method == INT4_FAST else "serve_quantized"


def _find_ring_lack(fellow: FellowFacts, needs: RingNeeds) -> Lack | None:
    has, stage_count = fellow.capabilities, needs.stage_count
    if has.serve is None:
        return Lack("serve", "it does not serve models")
    if has.wire is None or not has.wire.version_min <= WIRE_VERSION <= has.wire.version_max:
        spoken = f"{has.wire.version_min}..{has.wire.version_max}" if has.wire else "none"
        return Lack("wire", f"it reads wire versions {spoken}, this ring speaks {WIRE_VERSION}")
    if has.serve.model_types and needs.model_type not in has.serve.model_types:
        return Lack("serve.model_types", f"it builds {', '.join(has.serve.model_types)}, not {needs.model_type}")
    if stage_count == 1 and not has.serve_one_stage:
        return Lack("serve_one_stage", "it cannot hold a whole model as one stage")
    if stage_count > 2 and (has.stage_count_max is None or has.stage_count_max < stage_count):
        longest = "two" if has.stage_count_max is None else str(has.stage_count_max)
        return Lack("serve_n_stage", f"it takes part in rings of at most {longest} stages, not {stage_count}")
    if stage_count > 1 and needs.transport.demands_direct and not has.direct_link:
        return Lack("direct_link", f"it takes no direct links, and the transport asked for is {needs.transport.value}")
    return None


def _find_weights_lack(fellow: FellowFacts, needs: RingNeeds) -> Lack | None:
    has = fellow.capabilities
    if needs.quantization not in (NONE, *has.quantizations):
        known = ", ".join(has.quantizations) or "none"
        return Lack(
            quantization_capability(needs.quantization),
            f"it cannot hold {needs.quantization}; quantizations it has: {known}",
        )
    if needs.storage_dtype and needs.storage_dtype not in has.storage_dtypes:
        return Lack("serve_storage", f"it cannot hold weights in {needs.storage_dtype} and compute in another type")
    if needs.adapters and not has.adapters_max:
        return Lack("serve_adapters", f"it holds no adapters; asked for: {', '.join(needs.adapters)}")
    if len(needs.adapters) > has.adapters_max:
        return Lack("serve_adapters", f"it holds at most {has.adapters_max} adapters, not {len(needs.adapters)}")
    for codec in needs.codecs:
        if codec not in has.codecs:
            known = ", ".join(has.codecs) or "none"
            return Lack("serve_codec", f"it does not speak {codec}; codecs it has: {known}")
    return None
