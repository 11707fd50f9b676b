"""How a model was served as leader.v1.ModelPerformance, with the stages as they are now. Only translation."""

from silentswarm.leader.v1 import serving_pb2

from swarm_leader.domain.histogram import Spread
from swarm_leader.domain.performance import Split
from swarm_leader.domain.records import StageRecord
from swarm_leader.flows.board import Placement
from swarm_leader.flows.gate import Gates
from swarm_leader.flows.measure import Measuring
from swarm_leader.flows.registry import Registry, kv_tokens_max
from swarm_leader.flows.words import route_to_proto


class PerformanceWriter:
    """Writes performances with names and live figures."""

    def __init__(self, registry: Registry, gates: Gates, measuring: Measuring) -> None:
        self._registry = registry
        self._gates = gates
        self._measuring = measuring

    def of_model(self, model_id: str, placement: Placement | None) -> serving_pb2.ModelPerformance:
        """The last 15 minutes; figures of 0 for a model that was not served."""
        figures = self._measuring.figures(model_id)
        is_placed = placement is not None and placement.state.holds_memory
        gate = self._gates.of(placement.model_id) if placement is not None else None
        return serving_pb2.ModelPerformance(
            model_id=model_id,
            window_s=figures.window_s,
            completed=figures.completed,
            failed=figures.failed,
            too_long=figures.too_long,
            turned_away=figures.turned_away,
            cancelled=figures.cancelled,
            prompt_tokens=figures.prompt_tokens,
            generated_tokens=figures.generated_tokens,
            tokens_per_s=figures.tokens_per_s,
            running=gate.running if gate is not None else 0,
            waiting=gate.waiting if gate is not None else 0,
            first_token=_spread(figures.first_token),
            inter_token=_spread(figures.inter_token),
            split=_split(figures.split),
            stages=[self._stage(placement, stage) for stage in placement.record.stages]
            if placement is not None and is_placed
            else [],
        )

    def _stage(self, placement: Placement, stage: StageRecord) -> serving_pb2.StagePerformance:
        fellow = self._registry.get(stage.fellow_id)
        best = fellow.best_device if fellow is not None else None
        held = self._registry.held_by(stage.fellow_id, placement.record.placement_id)
        written = serving_pb2.StagePerformance(
            stage_index=stage.stage_index,
            fellow_id=stage.fellow_id,
            fellow_name=self._registry.name_of(stage.fellow_id),
            devices=[best.name] if best is not None else [],
            layer_start=stage.layer_start,
            layer_stop=stage.layer_stop,
            route=route_to_proto(stage.route),
            kv_tokens_max=placement.record.kv_tokens,
        )
        if held is not None and held.status is not None:
            written.kv_tokens_used = held.status.kv_tokens_used
            written.kv_tokens_max = kv_tokens_max(held.status) or placement.record.kv_tokens
            if (share := held.busy.share) is not None:
                written.busy_share = share
        return written


def _spread(spread: Spread | None) -> serving_pb2.Spread | None:
    return serving_pb2.Spread(p50_ms=spread.p50_ms, p95_ms=spread.p95_ms, p99_ms=spread.p99_ms) if spread else None


def _split(split: Split | None) -> serving_pb2.TimeSplit | None:
    if split is None:
        return None
    return serving_pb2.TimeSplit(
        queue_ms=split.queue_ms,
        prefill_ms=split.prefill_ms,
        stage_ms=split.stage_ms,
        wait_ms=split.wait_ms,
        link_ms=split.link_ms,
        sample_ms=split.sample_ms,
        detokenize_ms=split.detokenize_ms,
        bytes_per_token=split.bytes_per_token,
        batch_mean=split.batch_mean,
    )
