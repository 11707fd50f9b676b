"""Whether a fellow can hold one given stage of a ring as the ring is, and what it takes there. Pure arithmetic."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from swarm_core.manifest import Manifest
from swarm_core.slices import LayerRange

from swarm_leader.domain.capabilities import FellowFacts, find_wire_gap
from swarm_leader.domain.planning.budget import ModelCost, WeightForm, cost_of
from swarm_leader.domain.planning.device_spread import fits
from swarm_leader.domain.planning.placing import spread_stage
from swarm_leader.domain.planning.plan import PlanRequest, ServeDefaults
from swarm_leader.domain.planning.prediction import predict_stage_ms
from swarm_leader.domain.planning.refusals import gigabytes
from swarm_leader.domain.planning.ring_needs import find_lack
from swarm_leader.domain.planning.split import RingBudget, run_needs
from swarm_leader.domain.planning.wanted import AdapterWish, Wanted
from swarm_leader.domain.records import PlacementRecord, StageRecord


@dataclass(frozen=True)
class Refit:
    """A ring as it stands, with what its stages are made of."""

    record: PlacementRecord
    wanted: Wanted
    cost: ModelCost

    def find_obstacle(self, stage: StageRecord, fellow: FellowFacts, ring: Sequence[FellowFacts]) -> str:
        """Why a fellow cannot hold a stage, in words; "" when it can. ring: those that hold the others."""
        lack = find_lack(fellow, self.wanted.needs(len(self.record.stages)))
        if lack is not None:
            return f"lacks {lack.capability}: {lack.why}"
        missing = self._find_ring_gap(fellow, ring)
        if missing:
            return missing
        if fellow.busy_with:
            return f"loads {fellow.busy_with}, which one more model would evict"
        if fellow.makes_room_of:
            return f"would evict {', '.join(fellow.makes_room_of)}"
        if not self._fits(stage, fellow):
            return f"has {gigabytes(fellow.room_bytes)} free, {gigabytes(needed_bytes(stage))} are needed"
        return ""

    def refit(self, stage: StageRecord, fellow: FellowFacts) -> StageRecord:
        """The stage as this fellow would hold it. It must fit."""
        layers = LayerRange(stage.layer_start, stage.layer_stop, self.cost.layer_count)
        runs = spread_stage(self.cost, self._budget(fellow), 0, layers)
        indices = [device.device_index for device in fellow.devices]
        devices = tuple(replace(run, device_index=indices[run.device_index]) for run in runs if indices)
        return replace(
            stage,
            fellow_id=fellow.fellow_id,
            weight_bytes=sum(run.weight_bytes for run in runs),
            kv_bytes=sum(run.kv_bytes for run in runs),
            working_bytes=sum(run.working_bytes for run in runs),
            free_bytes=fellow.room_bytes,
            devices=devices,
            state="loading",
            quantization="",
            weight_bytes_measured=None,
            predicted_ms=predict_stage_ms(self.cost, fellow, devices),
        )

    def _find_ring_gap(self, fellow: FellowFacts, ring: Sequence[FellowFacts]) -> str:
        """What the ring does that this fellow cannot."""
        has, record = fellow.capabilities, self.record
        if find_wire_gap([*ring, fellow]) is not None:
            return "reads no wire version that the others of the ring read"
        spoken = has.wire.dtypes if has.wire else ()
        if len(record.stages) > 1 and spoken and record.dtype not in spoken:
            return f"sends {', '.join(spoken)}, the ring computes in {record.dtype}"
        if record.dtype != "F32" and fellow.compute_dtype == "F32":
            return f"computes in F32, the ring in {record.dtype}"
        if (has.in_flight_max or 1) < record.in_flight_max:
            return f"holds {has.in_flight_max or 1} sessions at once, the ring takes {record.in_flight_max}"
        if not has.serve_kv_budget and record.kv_tokens < record.in_flight_max * record.context_tokens:
            return "lacks serve_kv_budget: it counts a whole context for every reply"
        if not has.serve_rewire:
            return "lacks serve_rewire: it takes no place in a ring that is wired already"
        return ""

    def _fits(self, stage: StageRecord, fellow: FellowFacts) -> bool:
        needs = run_needs(self.cost, self._budget(fellow))
        return fits(needs, stage.layer_start, stage.layer_stop, fellow.room)

    def _budget(self, fellow: FellowFacts) -> RingBudget:
        record = self.record
        return RingBudget((fellow.room,), record.context_tokens, record.kv_tokens, record.in_flight_max)


def make_refit(
    record: PlacementRecord,
    manifest: Manifest,
    adapters: Sequence[AdapterWish],
    request: PlanRequest,
    defaults: ServeDefaults,
    prefill_chunk_tokens: int,
) -> Refit:
    """For a placement over these weights. prefill_chunk_tokens: of the fellow of the first stage, 0 does not say."""
    wanted = Wanted(
        manifest=manifest,
        request=request,
        defaults=defaults,
        context_tokens=record.context_tokens,
        adapters=tuple(adapters),
        quantization=record.quantization,
        halves_storage=bool(record.storage_dtype),
    )
    form = WeightForm(record.dtype, record.quantization, record.storage_dtype)
    cost = cost_of(manifest, form, wanted.adapter_costs(record.storage_dtype), prefill_chunk_tokens)
    return Refit(record, wanted, cost)


def needed_bytes(stage: StageRecord) -> int:
    """What a stage takes in all, as it was planned, or measured where that is more."""
    return max(stage.weight_bytes, stage.weight_bytes_measured or 0) + stage.kv_bytes + stage.working_bytes
