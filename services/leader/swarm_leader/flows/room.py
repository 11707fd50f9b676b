"""What the planner may count on: each fellow's last figures, and what was freed or promised since. Decides nothing."""

from collections.abc import Sequence

from silentswarm.core.v1 import hardware_pb2

from swarm_leader.domain.capabilities import FellowFacts
from swarm_leader.domain.records import PlacementState
from swarm_leader.flows.board import Board, Placement
from swarm_leader.flows.registry import Fellow, Registry

_ON_THE_WAY = (PlacementState.LOADING, PlacementState.WIRING)


def fleet_facts(registry: Registry, board: Board) -> list[FellowFacts]:
    """Every connected fellow, by name."""
    connected = [fellow for fellow in registry.all() if registry.is_connected(fellow.fellow_id)]
    return [facts_of(fellow, board.holding(fellow.fellow_id)) for fellow in connected]


def facts_of(fellow: Fellow, placements: Sequence[Placement] = ()) -> FellowFacts:
    """One fellow. placements: those that have, or are about to have, a stage in its memory."""
    best = fellow.best_device
    arriving = [one for one in placements if one.state in _ON_THE_WAY]
    is_full = len(arriving) >= _models_max(fellow)
    return FellowFacts(
        fellow_id=fellow.fellow_id,
        name=fellow.name,
        free_bytes=_room_bytes(fellow, placements, {one.record.placement_id for one in arriving}),
        compute_dtype=best.compute_dtype if best is not None else "",
        capabilities=fellow.capabilities,
        busy_with=", ".join(one.model_id for one in arriving) if is_full else "",
        compute_capability=_compute_capability(best) if best is not None else None,
    )


def _compute_capability(device: hardware_pb2.Device) -> tuple[int, int] | None:
    """(8, 6) for "8.6"; None for a processor, and for what cannot be read."""
    major, dot, minor = device.compute_capability.partition(".")
    is_read = device.kind == "cuda" and bool(dot) and major.isdecimal() and minor.isdecimal()
    return (int(major[:4]), int(minor[:4])) if is_read else None


def _models_max(fellow: Fellow) -> int:
    serve = fellow.capabilities.serve
    return max(1, serve.loaded_models_max) if serve else 1


def _room_bytes(fellow: Fellow, placements: Sequence[Placement], arriving: set[str]) -> int | None:
    """Free on its best device for one more model; None is unknown.

    More than its last figures say: what it freed since, and what it would evict (its oldest models beyond its limit,
    but none that arrives), yet never more than the device has. Less: what was promised to stages those figures do not
    know of yet.
    """
    best = fellow.best_device
    if best is None or not best.HasField("memory_free_bytes"):
        return None
    here = {*fellow.stages, *(one.record.placement_id for one in placements)}
    surplus = max(0, len(here) + 1 - _models_max(fellow)) if fellow.capabilities.serve else 0
    evicted = [held for placement_id, held in fellow.stages.items() if placement_id not in arriving][:surplus]
    room = best.memory_free_bytes + sum(fellow.freed_bytes.values()) + sum(map(fellow.memory_of, evicted))
    if best.HasField("memory_total_bytes"):
        room = min(room, best.memory_total_bytes)
    return max(0, room - sum(_promised_bytes(fellow, placement) for placement in placements))


def _promised_bytes(fellow: Fellow, placement: Placement) -> int:
    """What the plan of a placement takes on this fellow, until a heartbeat shows its stage."""
    held = fellow.stages.get(placement.record.placement_id)
    if held is not None and held.status is not None:
        return 0
    stages = [stage for stage in placement.record.stages if stage.fellow_id == fellow.fellow_id]
    return sum(stage.weight_bytes + stage.kv_bytes + stage.working_bytes for stage in stages)
