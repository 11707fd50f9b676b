"""The rules of the placement ledger: which state may follow which, and what an epoch fences. Writes nothing."""

from dataclasses import replace

from swarm_core.errors import StaleEpoch

from swarm_leader.domain.plan import Plan, PlanRequest
from swarm_leader.domain.records import PlacementRecord, PlacementState, Route, StageRecord, Transport

S = PlacementState
_FOLLOWS: dict[PlacementState, set[PlacementState]] = {
    S.PLANNED: set(),
    S.LOADING: {S.LOADING, S.WIRING, S.FAILED, S.UNLOADED},
    S.WIRING: {S.WIRING, S.READY, S.FAILED, S.UNLOADED},
    S.READY: {S.READY, S.WIRING, S.IDLE, S.FAILED, S.UNLOADED},
    S.RECOVERING: {S.RECOVERING, S.WIRING, S.FAILED, S.UNLOADED},
    S.IDLE: {S.UNLOADED},
    S.FAILED: {S.UNLOADED},
    S.UNLOADED: {S.UNLOADED},
}


def begin(
    planned: Plan, model_id: str, manifest_sha256: str, placement_id: str, created_s: float, epoch: int = 1
) -> PlacementRecord:
    """The first record of a load. epoch: beyond every one the model had, for the highest is the newest."""
    return PlacementRecord(
        placement_id=placement_id,
        model_id=model_id,
        manifest_sha256=manifest_sha256,
        epoch=epoch,
        state=PlacementState.LOADING,
        reason="",
        transport=planned.transport,
        dtype=planned.dtype,
        context_tokens=planned.context_tokens,
        kv_tokens=planned.kv_tokens,
        in_flight_max=planned.in_flight_max,
        created_s=created_s,
        stages=tuple(replace(stage, state="loading") for stage in planned.stages),
        notes=planned.notes,
        batch_max=planned.batch_max,
    )


def check_follows(old: PlacementRecord, new: PlacementRecord) -> None:
    """Refuse a write that an ended placement, or a newer epoch, has overtaken. Raises StaleEpoch."""
    if new.epoch < old.epoch or new.state not in _FOLLOWS[old.state]:
        raise StaleEpoch(
            f"placement of {old.model_id} is {old.state} at epoch {old.epoch}; it cannot become {new.state} "
            f"at epoch {new.epoch}",
            epoch=old.epoch,
        )


def end(record: PlacementRecord, state: PlacementState, reason: str, lost_fellow_id: str = "") -> PlacementRecord:
    """The record of a placement that no longer holds memory; the stages of `lost_fellow_id` are lost, not ended."""
    stages = tuple(
        replace(stage, state="lost" if stage.fellow_id == lost_fellow_id else "ended") for stage in record.stages
    )
    return replace(record, state=state, reason=reason, stages=stages)


def set_stage(record: PlacementRecord, stage_index: int, state: str) -> PlacementRecord:
    """The record with one stage in another state."""
    return replace(record, stages=tuple(_with_state(stage, stage_index, state) for stage in record.stages))


def set_routes(record: PlacementRecord, routes: tuple[Route, ...]) -> PlacementRecord:
    """The record with the way each stage reaches the next."""
    pairs = zip(record.stages, routes, strict=True)
    return replace(record, stages=tuple(replace(stage, route=route) for stage, route in pairs))


def is_same_wish(record: PlacementRecord, request: PlanRequest) -> bool:
    """Whether a request asks for nothing that this placement does not already give."""
    fellow_ids = tuple(stage.fellow_id for stage in record.stages)
    return (
        request.num_stages in (0, len(record.stages))
        and request.fellow_ids in ((), fellow_ids)
        and request.transport in (Transport.AUTO, record.transport)
        and request.context_tokens in (0, record.context_tokens)
    )


def _with_state(stage: StageRecord, stage_index: int, state: str) -> StageRecord:
    return replace(stage, state=state) if stage.stage_index == stage_index else stage
