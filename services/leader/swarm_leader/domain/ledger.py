"""The rules of the placement ledger: which state may follow which, and what an epoch fences. Writes nothing."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from swarm_core.errors import StaleEpoch

from swarm_leader.domain.holding import AdapterUse, measured_runs
from swarm_leader.domain.planning.plan import NO_CODEC, Plan, PlanRequest
from swarm_leader.domain.records import PlacementRecord, PlacementState, Route, StageRecord, Transport

S = PlacementState
_FOLLOWS: dict[PlacementState, set[PlacementState]] = {
    S.PLANNED: set(),
    S.LOADING: {S.LOADING, S.WIRING, S.FAILED, S.UNLOADED},
    S.WIRING: {S.WIRING, S.READY, S.RECOVERING, S.IDLE, S.FAILED, S.UNLOADED},
    S.READY: {S.READY, S.WIRING, S.RECOVERING, S.IDLE, S.FAILED, S.UNLOADED},
    S.RECOVERING: {S.RECOVERING, S.WIRING, S.READY, S.IDLE, S.FAILED, S.UNLOADED},
    S.IDLE: {S.UNLOADED},
    S.FAILED: {S.FAILED, S.UNLOADED},
    S.UNLOADED: {S.UNLOADED},
}


@dataclass(frozen=True)
class LoadedStage:
    """A stage as its fellow loaded it. weight_bytes 0, quantization "" and no device bytes: it does not say."""

    weight_bytes: int = 0
    quantization: str = ""
    notes: tuple[str, ...] = ()
    device_weight_bytes: tuple[int, ...] = ()

    @property
    def weight_bytes_by_device(self) -> tuple[int, ...]:
        """Weights on each device, in order; of one alone when only the sum is known."""
        return self.device_weight_bytes or ((self.weight_bytes,) if self.weight_bytes else ())


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
        quantization=planned.quantization,
        quantization_asked=planned.quantization_asked,
        storage_dtype=planned.storage_dtype,
        weights_model_id=planned.weights_model_id,
        adapters=planned.adapters,
        codec=planned.codec,
        predicted_tokens_per_s=planned.predicted_tokens_per_s,
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


def set_routes(record: PlacementRecord, routes: tuple[Route, ...]) -> PlacementRecord:
    """The record with the way each stage reaches the next."""
    pairs = zip(record.stages, routes, strict=True)
    return replace(record, stages=tuple(replace(stage, route=route) for stage, route in pairs))


def recover(record: PlacementRecord, reason: str) -> PlacementRecord:
    """The record of a ring that is being brought back."""
    return replace(record, state=PlacementState.RECOVERING, reason=reason)


def move(record: PlacementRecord, stages: Mapping[int, StageRecord], reason: str) -> PlacementRecord:
    """The record with other stages in the place of some, at the next epoch: from now on who held them does not."""
    changed = tuple(stages.get(stage.stage_index, stage) for stage in record.stages)
    return replace(recover(record, reason), epoch=record.epoch + 1, stages=changed)


def set_loaded(record: PlacementRecord, stage_index: int, loaded: LoadedStage, name: str) -> PlacementRecord:
    """The record with one stage as its fellow (`name`) loaded it."""
    stage = record.stages[stage_index]
    changed = replace(
        stage,
        state="loaded",
        quantization=loaded.quantization or record.quantization,
        weight_bytes_measured=loaded.weight_bytes or None,
        devices=measured_runs(stage.devices, loaded.weight_bytes_by_device),
    )
    stages = tuple(changed if one is stage else one for one in record.stages)
    return replace(record, stages=stages, notes=(*record.notes, *(f"{name}: {note}" for note in loaded.notes)))


def ask_again(record: PlacementRecord, fellow_ids: tuple[str, ...] = ()) -> PlanRequest:
    """The request that gives a placement once more, as it was. fellow_ids: empty is the planner's choice."""
    return PlanRequest(
        num_stages=len(record.stages),
        fellow_ids=fellow_ids,
        transport=record.transport,
        context_tokens=record.context_tokens,
        quantization=record.quantization_asked or record.quantization,
        adapters=tuple(adapter.model_id for adapter in record.adapters if adapter.use is AdapterUse.CHOSEN),
        codec=record.codec,
    )


def find_differences(record: PlacementRecord, request: PlanRequest) -> list[str]:
    """What a request asks for that a placement does not give, in words. request: with fellow and adapter ids."""
    fellow_ids = tuple(stage.fellow_id for stage in record.stages)
    held = {adapter.model_id for adapter in record.adapters}
    missing = [adapter for adapter in request.adapters if adapter not in held]
    differences = {
        f"{request.num_stages} stages": request.num_stages not in (0, len(record.stages)),
        "other fellows": request.fellow_ids not in ((), fellow_ids),
        f"transport {request.transport.value}": request.transport not in (Transport.AUTO, record.transport),
        f"{request.context_tokens:,} tokens of context": request.context_tokens not in (0, record.context_tokens),
        f"quantization {request.quantization}": request.quantization
        not in ("", record.quantization, record.quantization_asked),
        f"{'adapter' if len(missing) == 1 else 'adapters'} {', '.join(missing)}": bool(missing),
        f"codec {request.codec}": not _is_coded(record, request.codec),
    }
    return [words for words, differs in differences.items() if differs]


def say_held(record: PlacementRecord) -> str:
    """What a placement gives, in words, as far as a request can ask for it."""
    count = len(record.stages)
    words = f"over {count} stage{'' if count == 1 else 's'} by {record.transport.value}"
    words += f" with {record.context_tokens:,} tokens of context, quantization {record.quantization}"
    chosen = [adapter.model_id for adapter in record.adapters]
    words += f", adapters {', '.join(chosen)}" if chosen else ", no adapters"
    return f"{words}, codec {record.codec or 'as trained'}"


def _is_coded(record: PlacementRecord, codec: str) -> bool:
    """Whether the links are coded as a request asks for."""
    coded = {stage.codec_out or NO_CODEC for stage in record.stages[:-1]}
    return codec in ("", record.codec) or coded <= {codec}
