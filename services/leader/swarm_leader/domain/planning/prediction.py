"""How fast one reply will be, before anything is loaded: from what a token reads and how fast devices read. Pure."""

from collections.abc import Sequence

from swarm_core.slices import LayerRange

from swarm_leader.domain.capabilities import FellowFacts
from swarm_leader.domain.holding import DeviceRun
from swarm_leader.domain.planning.budget import ModelCost
from swarm_leader.domain.records import StageRecord

# What a hop costs beyond compute on one network: 1.01 and 1.06 ms, measured for two stages of SmolLM2
# (docs/measurements/2026-11-many-requests.md). A link over the internet adds its own travel, which no plan knows.
HOP_MS = 1.03


def predict_stage_ms(cost: ModelCost, fellow: FellowFacts, runs: Sequence[DeviceRun]) -> float | None:
    """Compute of one token on one stage, in ms; None while the speed of a device is unknown.

    Decoding reads every weight of a stage once a token and is bound by that, on a processor also by unpacking weights
    of few bits; what else it does is left out.
    """
    devices = {device.device_index: device for device in fellow.devices}
    total_ms = 0.0
    for run in runs:
        device = devices.get(run.device_index)
        if device is None or not device.read_bytes_per_s:
            return None
        layers = LayerRange(run.layer_start, run.layer_stop, cost.layer_count)
        total_ms += 1000 * cost.read_bytes(layers, device.is_processor) / device.read_bytes_per_s
    return total_ms if runs else None


def predict_tokens_per_s(stages: Sequence[StageRecord]) -> float | None:
    """Tokens per second of one reply that has the ring for itself; None while a stage's time is unknown."""
    times = [stage.predicted_ms for stage in stages]
    hops = len(stages) if len(stages) > 1 else 0
    lap_ms = hops * HOP_MS
    for stage_ms in times:
        if stage_ms is None:
            return None
        lap_ms += stage_ms
    return 1000 / lap_ms if lap_ms > 0 else None
