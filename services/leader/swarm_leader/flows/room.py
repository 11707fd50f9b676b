"""What the planner may count on: each fellow's last figures, and what was freed or promised since. Decides nothing."""

import math
from collections.abc import Sequence
from dataclasses import replace

from silentswarm.core.v1 import hardware_pb2

from swarm_leader.domain.capabilities import FellowFacts
from swarm_leader.domain.device_facts import CARD, DeviceFacts
from swarm_leader.domain.records import PlacementState, StageRecord
from swarm_leader.flows.board import Board, Placement
from swarm_leader.flows.registry import Fellow, Registry

_ON_THE_WAY = (PlacementState.LOADING, PlacementState.WIRING)


def fleet_facts(registry: Registry, board: Board, model_id: str) -> list[FellowFacts]:
    """Every connected fellow, by name. model_id: what is to be placed, which makes no room for itself."""
    connected = [fellow for fellow in registry.all() if registry.is_connected(fellow.fellow_id)]
    return [
        replace(
            facts_of(fellow, board.holding(fellow.fellow_id), model_id),
            link_times=registry.link_times.of(fellow.fellow_id),
        )
        for fellow in connected
    ]


def facts_of(fellow: Fellow, placements: Sequence[Placement] = (), model_id: str = "") -> FellowFacts:
    """One fellow. placements: those that have, or are about to have, a stage in its memory. model_id: what comes."""
    best = fellow.best_device
    arriving = [one for one in placements if one.state in _ON_THE_WAY]
    is_full = len(arriving) >= _models_max(fellow)
    arriving_ids = {one.record.placement_id for one in arriving}
    devices = fellow.stage_devices
    return FellowFacts(
        fellow_id=fellow.fellow_id,
        name=fellow.name,
        free_bytes=_room_bytes(fellow, best, placements, arriving_ids) if best is not None else None,
        compute_dtype=_compute_dtype(devices),
        capabilities=fellow.capabilities,
        busy_with=", ".join(one.model_id for one in arriving) if is_full else "",
        makes_room_of=tuple(
            one.model_id
            for one in placements
            if one.record.placement_id in _evicted(fellow, placements, arriving_ids) and one.model_id != model_id
        ),
        compute_capability=min(filter(None, map(_compute_capability, devices)), default=None),
        devices=tuple(
            DeviceFacts(
                device_index=device.device_index,
                kind=device.kind,
                free_bytes=_room_bytes(fellow, device, placements, arriving_ids),
                compute_dtype=device.compute_dtype,
                read_bytes_per_s=_measured(device, "read_bytes_per_s"),
                float32_flops=_measured(device, "float32_flops"),
                float16_flops=_measured(device, "float16_flops"),
            )
            for device in devices
        ),
        leader_round_trip_ms=_measured(fellow.hardware, "leader_round_trip_ms"),
        leader_down_bytes_per_s=_measured(fellow.hardware, "leader_down_bytes_per_s"),
        leader_up_bytes_per_s=_measured(fellow.hardware, "leader_up_bytes_per_s"),
    )


def _compute_dtype(devices: Sequence[hardware_pb2.Device]) -> str:
    """What a stage over all of these computes in: the type that every one of them can."""
    computed = [device.compute_dtype for device in devices]
    return next((dtype for dtype in ("F32", "F16") if dtype in computed), computed[0] if computed else "")


def _measured(told: hardware_pb2.Device | hardware_pb2.Hardware, figure: str) -> float | None:
    """A measured figure; None when it was not measured, or says what cannot be."""
    amount: float = getattr(told, figure)
    return amount if told.HasField(figure) and 0 < amount < math.inf else None


def _compute_capability(device: hardware_pb2.Device) -> tuple[int, int] | None:
    """(8, 6) for "8.6"; None for a processor, and for what cannot be read."""
    major, dot, minor = device.compute_capability.partition(".")
    is_read = device.kind == CARD and bool(dot) and major.isdecimal() and minor.isdecimal()
    return (int(major[:4]), int(minor[:4])) if is_read else None


def _models_max(fellow: Fellow) -> int:
    serve = fellow.capabilities.serve
    return max(1, serve.loaded_models_max) if serve else 1


def _room_bytes(
    fellow: Fellow, device: hardware_pb2.Device, placements: Sequence[Placement], arriving: set[str]
) -> int | None:
    """Free on one device for one more model; None is unknown.

    More than its last figures say: what it freed since, what it would evict (its oldest models beyond its limit, but
    none that arrives), and what its covers hold, which give way; yet never more than the device has. Less: what was
    promised to stages those figures do not know of yet.
    """
    if not device.HasField("memory_free_bytes"):
        return None
    index = device.device_index
    evicted = [fellow.stages[placement_id] for placement_id in _evicted(fellow, placements, arriving)]
    room = device.memory_free_bytes + sum(freed.get(index, 0) for freed in fellow.freed_bytes.values())
    room += sum(fellow.memory_of(held).get(index, 0) for held in evicted)
    room += _covers_bytes(fellow, index)  # they give way to a load
    if device.HasField("memory_total_bytes"):
        room = min(room, device.memory_total_bytes)
    return max(0, room - sum(_promised_bytes(fellow, device, placement) for placement in placements))


def _covers_bytes(fellow: Fellow, device_index: int) -> int:
    return sum(fellow.cover_memory_of(cover).get(device_index, 0) for cover in fellow.covers.values())


def fits_beside_covers(fellow: Fellow, stage: StageRecord) -> bool:
    """Whether a stage has room as it is planned without anything its fellow's covers hold. Unknown is no."""
    devices = [device for device in fellow.hardware.devices if _planned_bytes(fellow, device, stage) > 0]
    return all(
        device.HasField("memory_free_bytes") and _planned_bytes(fellow, device, stage) <= device.memory_free_bytes
        for device in devices
    )


def cover_facts(fellow: Fellow, placements: Sequence[Placement], reserve_bytes: int) -> FellowFacts:
    """One fellow as far as covers go: they evict nothing, and count as no model.

    What is free: its last figures and what its covers hold; less what its stages were planned to take and do not take
    yet, and the reserve.
    """
    facts = facts_of(fellow, placements)
    free = {
        device.device_index: _beside_stages_bytes(fellow, device, placements, reserve_bytes)
        for device in fellow.hardware.devices
    }
    best = fellow.best_device
    return replace(
        facts,
        busy_with="",
        makes_room_of=(),
        free_bytes=free.get(best.device_index) if best is not None else None,
        devices=tuple(replace(device, free_bytes=free.get(device.device_index)) for device in facts.devices),
    )


def _beside_stages_bytes(
    fellow: Fellow, device: hardware_pb2.Device, placements: Sequence[Placement], reserve_bytes: int
) -> int | None:
    if not device.HasField("memory_free_bytes"):
        return None
    free_bytes = device.memory_free_bytes + _covers_bytes(fellow, device.device_index) - reserve_bytes
    for placement in placements:
        held = fellow.stages.get(placement.record.placement_id)
        taken = fellow.memory_of(held).get(device.device_index, 0) if held is not None else 0
        planned = sum(
            _planned_bytes(fellow, device, stage)
            for stage in placement.record.stages
            if stage.fellow_id == fellow.fellow_id
        )
        free_bytes -= max(planned - taken, 0)
    return max(free_bytes, 0)


def _evicted(fellow: Fellow, placements: Sequence[Placement], arriving: set[str]) -> list[str]:
    """Placements whose stages it would end for one more model: its oldest beyond its limit, but none that arrives."""
    here = {*fellow.stages, *(one.record.placement_id for one in placements)}
    surplus = max(0, len(here) + 1 - _models_max(fellow)) if fellow.capabilities.serve else 0
    return [placement_id for placement_id in fellow.stages if placement_id not in arriving][:surplus]


def _promised_bytes(fellow: Fellow, device: hardware_pb2.Device, placement: Placement) -> int:
    """What the plan of a placement takes on this device, until a heartbeat shows its stage."""
    held = fellow.stages.get(placement.record.placement_id)
    if held is not None and held.status is not None:
        return 0
    return sum(
        _planned_bytes(fellow, device, stage)
        for stage in placement.record.stages
        if stage.fellow_id == fellow.fellow_id
    )


def _planned_bytes(fellow: Fellow, device: hardware_pb2.Device, stage: StageRecord) -> int:
    """What a stage was planned to take on one device; all of it on the best one when no devices were planned."""
    if stage.devices:
        return sum(run.needed_bytes for run in stage.devices if run.device_index == device.device_index)
    best = fellow.best_device
    is_there = best is not None and best.device_index == device.device_index
    return stage.weight_bytes + stage.kv_bytes + stage.working_bytes if is_there else 0
