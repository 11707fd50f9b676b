"""What was predicted of a model and what was measured since, in leader.v1.ModelStatus. Only translation."""

from collections.abc import Sequence

from silentswarm.leader.v1 import serving_pb2

from swarm_leader.domain.performance import Figures, Split
from swarm_leader.domain.planning.plan import Forecast


def write_forecast(status: serving_pb2.ModelStatus, forecast: Forecast) -> None:
    """What a plan said beyond its speed; what it did not know stays absent, and what was of a ring that moved since."""
    is_of_this_ring = forecast.fellow_ids == tuple(stage.fellow_id for stage in status.stages)
    if is_of_this_ring and forecast.first_token_ms is not None:
        status.predicted_first_token_ms = forecast.first_token_ms
    if is_of_this_ring and forecast.link_ms:
        for stage, link_ms in zip(status.stages, forecast.link_ms, strict=True):
            stage.predicted_link_ms = link_ms
    status.left_out.extend(
        serving_pb2.LeftOut(fellow_id=one.fellow_id, fellow_name=one.name, reason=one.reason)
        for one in forecast.left_out
    )


def write_measured(status: serving_pb2.ModelStatus, figures: Figures) -> None:
    """What its replies took lately; nothing before one. Times of a ring of other stages say nothing of this one."""
    if figures.first_token is not None:
        status.measured_first_token_ms = figures.first_token.p50_ms
    split = figures.split
    if split is None or len(split.stage_ms) != len(status.stages):
        return
    token_ms = _token_ms(split)
    if token_ms > 0:
        status.measured_tokens_per_s = 1000 / token_ms
    status.measured_link_ms = split.link_ms
    for stage, stage_ms in zip(status.stages, split.stage_ms, strict=True):
        stage.measured_ms = stage_ms


def write_measured_links(stages: Sequence[serving_pb2.StagePlacement]) -> None:
    """Half of what each stage's last beats took there and back."""
    for stage in stages:
        if stage.live.HasField("link_round_trip_ms"):
            stage.measured_link_ms = stage.live.link_round_trip_ms / 2


def _token_ms(split: Split) -> float:
    """Everything between two tokens of one reply, waits beside other replies included."""
    return sum(split.stage_ms) + split.wait_ms + split.link_ms + split.sample_ms
