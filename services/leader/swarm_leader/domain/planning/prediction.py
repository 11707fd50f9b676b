"""How fast one reply will be, before anything is loaded: from what is read and computed, and how far it is. Pure."""

import math
from collections.abc import Sequence

from swarm_core.manifest import DTYPE_BYTES
from swarm_core.servable_parts import INT4
from swarm_core.slices import LayerRange

from swarm_leader.domain.capabilities import FellowFacts
from swarm_leader.domain.device_facts import DeviceFacts
from swarm_leader.domain.holding import DeviceRun
from swarm_leader.domain.planning.budget import ModelCost
from swarm_leader.domain.planning.links import TOKEN_BYTES, link_ms
from swarm_leader.domain.planning.plan import PROMPT_TOKENS
from swarm_leader.domain.records import Route, StageRecord

CODED_BYTES = {"int8": 1.0, INT4: 0.5}  # of one element on a link


def read_speed(fellow: FellowFacts) -> float | None:
    """Bytes a second that a stage of this fellow reads, spread over its devices as memory allows; None is unknown."""
    devices = fellow.devices
    speeds = [device.read_bytes_per_s for device in devices if device.read_bytes_per_s]
    if not devices or len(speeds) < len(devices):
        return None
    frees = [device.free_bytes for device in devices if device.free_bytes]
    shares = [float(free) for free in frees] if len(frees) == len(devices) else [1.0] * len(devices)
    return sum(shares) / sum(share / speed for share, speed in zip(shares, speeds, strict=True))


def predict_stage_ms(cost: ModelCost, fellow: FellowFacts, runs: Sequence[DeviceRun]) -> float | None:
    """Compute of one token on one stage, in ms; None while the speed of a device is unknown.

    Decoding reads every weight of a stage once a token and is bound by that, on a processor also by unpacking weights
    of few bits; what else it does is left out.
    """
    times = [_read_ms(cost, run, device) for run, device in _on_devices(fellow, runs)]
    return _sum(times)


def predict_links_ms(
    ring: Sequence[FellowFacts], stages: Sequence[StageRecord], hidden_size: int, dtype: str, tokens: int = 1
) -> tuple[float, ...]:
    """One way from each stage to the next, in ms; the last one carries a token. Empty for a stage that is alone."""
    if len(ring) == 1:
        return ()
    times = []
    for index, stage in enumerate(stages):
        element_bytes = CODED_BYTES.get(stage.codec_out, float(DTYPE_BYTES[dtype]))
        is_last = index == len(stages) - 1
        payload = TOKEN_BYTES if is_last else hidden_size * element_bytes * tokens
        receiver = ring[(index + 1) % len(ring)]
        times.append(link_ms(ring[index], receiver, stage.route is not Route.DIRECT, payload))
    return tuple(times)


def predict_tokens_per_s(stages: Sequence[StageRecord], links_ms: Sequence[float]) -> float | None:
    """Tokens per second of one reply that has the ring for itself; None while a stage's time is unknown."""
    compute_ms = _sum([stage.predicted_ms for stage in stages])
    lap_ms = None if compute_ms is None else compute_ms + sum(links_ms)
    return 1000 / lap_ms if lap_ms else None


def predict_first_token_ms(
    cost: ModelCost, ring: Sequence[FellowFacts], stages: Sequence[StageRecord], hidden_size: int, dtype: str
) -> float | None:
    """From a prompt of PROMPT_TOKENS to its first token, in ms; None while a device has not measured its products.

    A prompt goes round in pieces, one stage computing a piece while the stage before computes the next: the first
    piece passes every stage, and each one after it follows as fast as the slowest stage or link.
    """
    piece = min(cost.prefill_chunk_tokens, PROMPT_TOKENS)
    compute_ms = []
    for fellow, stage in zip(ring, stages, strict=True):
        runs = _on_devices(fellow, stage.devices)
        one = _sum([_piece_ms(cost, run, device, dtype, piece) for run, device in runs])
        if one is None:
            return None
        compute_ms.append(one)
    links_ms = predict_links_ms(ring, stages, hidden_size, dtype, piece)
    following = math.ceil(PROMPT_TOKENS / piece) - 1
    return sum(compute_ms) + sum(links_ms) + following * max(*compute_ms, *links_ms[:-1], 0.0)


def _on_devices(fellow: FellowFacts, runs: Sequence[DeviceRun]) -> list[tuple[DeviceRun, DeviceFacts | None]]:
    devices = {device.device_index: device for device in fellow.devices}
    return [(run, devices.get(run.device_index)) for run in runs]


def _read_ms(cost: ModelCost, run: DeviceRun, device: DeviceFacts | None) -> float | None:
    if device is None or not device.read_bytes_per_s:
        return None
    layers = LayerRange(run.layer_start, run.layer_stop, cost.layer_count)
    return 1000 * cost.read_bytes(layers, device.is_processor) / device.read_bytes_per_s


def _piece_ms(cost: ModelCost, run: DeviceRun, device: DeviceFacts | None, dtype: str, tokens: int) -> float | None:
    """A piece of a prompt on one device: bound by its products, or by reading the weights once when it is short."""
    read_ms, flops = _read_ms(cost, run, device), device.flops(dtype) if device is not None else None
    if read_ms is None or not flops:
        return None
    layers = LayerRange(run.layer_start, run.layer_stop, cost.layer_count)
    return max(read_ms, 1000 * cost.operations(layers) * tokens / flops)


def _sum(times: Sequence[float | None]) -> float | None:
    """The sum; None when there are none, or one is unknown."""
    known = [one for one in times if one is not None]
    return sum(known) if known and len(known) == len(times) else None
