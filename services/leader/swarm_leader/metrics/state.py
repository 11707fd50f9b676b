"""Gauges of the leader: read in its event loop when they are scraped, so that nothing is kept up to date for nobody."""

import asyncio
import concurrent.futures
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from swarm_core.loop_lag import LAG_BUCKETS_S

from swarm_leader.domain.leases import FellowState
from swarm_leader.domain.records import PlacementState
from swarm_leader.flows.board import Board, Placement
from swarm_leader.flows.gate import Gates
from swarm_leader.flows.registry import Registry, kv_tokens_max
from swarm_leader.relay.board import LaneBoard

READ_TIMEOUT_S = 2.0  # an event loop that is later than this has its counters scraped without gauges


@dataclass(frozen=True)
class ModelState:
    """One model that is placed. kv_share: of the fullest stage, 0 to 1; None before its first heartbeat."""

    model_id: str
    running: int
    waiting: int
    kv_share: float | None


@dataclass(frozen=True)
class State:
    """What is scraped as it is now. fellows: how many are in each state."""

    relay_frames: int
    relay_bytes: int
    relay_lanes: int
    relay_queued_bytes: int = 0
    relay_refused: int = 0
    models: tuple[ModelState, ...] = ()
    fellows: dict[str, int] = field(default_factory=dict)
    leases_lost: int = 0


def read_relay(lanes: LaneBoard) -> State:
    """The relay alone."""
    tally = lanes.tally
    return State(tally.frames, tally.payload_bytes, lanes.live_count, tally.queued_bytes, tally.refused)


def read_leader(board: Board, registry: Registry, gates: Gates, lanes: LaneBoard) -> State:
    """The whole leader."""
    counted = Counter(registry.state(fellow).value for fellow in registry.all())
    models = []
    for placement in board.all():
        if placement.state is not PlacementState.UNLOADED:
            gate = gates.of(placement.model_id)
            models.append(ModelState(placement.model_id, gate.running, gate.waiting, _kv_share(placement, registry)))
    return State(
        relay_frames=lanes.tally.frames,
        relay_bytes=lanes.tally.payload_bytes,
        relay_lanes=lanes.live_count,
        relay_queued_bytes=lanes.tally.queued_bytes,
        relay_refused=lanes.tally.refused,
        models=tuple(models),
        fellows={state.value: counted[state.value] for state in FellowState},
        leases_lost=registry.leases.lost_count,
    )


class StateCollector(Collector):
    """Reads the state in the loop it was made in, and says it."""

    def __init__(self, read: Callable[[], State]) -> None:
        self._read = read
        self._loop = asyncio.get_running_loop()

    def collect(self) -> Iterator[Metric]:
        """Called in a thread of the listener."""
        try:
            state = asyncio.run_coroutine_threadsafe(self._read_now(), self._loop).result(READ_TIMEOUT_S)
        except (concurrent.futures.TimeoutError, concurrent.futures.CancelledError, RuntimeError):
            return
        yield from _models(state)
        fellows = GaugeMetricFamily("silentswarm_fellows", "Fellows known, by state.", labels=["state"])
        for name, count in state.fellows.items():
            fellows.add_metric([name], count)
        yield fellows
        yield _counter("leases_lost", "Fellows that did not report for a lease.", state.leases_lost)
        yield _counter("relay_frames", "Payloads that senders gave the relay.", state.relay_frames)
        yield _counter("relay_bytes", "Bytes of those payloads.", state.relay_bytes)
        yield _counter("relay_refused", "Ends turned away for their ticket.", state.relay_refused)
        yield GaugeMetricFamily("silentswarm_relay_lanes", "Lanes with an end attached.", value=state.relay_lanes)
        waiting = "Bytes that wait for receivers, in all lanes."
        yield GaugeMetricFamily("silentswarm_relay_queued_bytes", waiting, value=state.relay_queued_bytes)

    def describe(self) -> list[Metric]:
        """Nothing: what it says depends on what is there."""
        return []

    async def _read_now(self) -> State:
        return self._read()


def make_registry(read: Callable[[], State]) -> CollectorRegistry:
    """A registry of this process's own, with its gauges and what the operating system knows of it."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    registry.register(StateCollector(read))
    return registry


def make_loop_lag(registry: CollectorRegistry) -> Histogram:
    """How late the event loop is; feed it with swarm_core.loop_lag."""
    return Histogram(
        "silentswarm_leader_event_loop_lag_seconds",
        "How much later than due the event loop ran a timer.",
        buckets=LAG_BUCKETS_S,
        registry=registry,
    )


def _models(state: State) -> Iterator[Metric]:
    label = ["model_name"]
    running = GaugeMetricFamily("silentswarm_num_requests_running", "Replies running.", labels=label)
    waiting = GaugeMetricFamily("silentswarm_num_requests_waiting", "Requests waiting.", labels=label)
    kv = GaugeMetricFamily(
        "silentswarm_kv_cache_usage_perc", "KV in use on the fullest stage, 1 is all of it.", labels=label
    )
    for model in state.models:
        running.add_metric([model.model_id], model.running)
        waiting.add_metric([model.model_id], model.waiting)
        if model.kv_share is not None:
            kv.add_metric([model.model_id], model.kv_share)
    yield from (running, waiting, kv)


def _counter(name: str, words: str, count: int) -> CounterMetricFamily:
    return CounterMetricFamily(f"silentswarm_{name}", words, value=count)


def _kv_share(placement: Placement, registry: Registry) -> float | None:
    shares = []
    for stage in placement.record.stages:
        status = registry.status_of(stage.fellow_id, placement.record.placement_id)
        if status is not None and kv_tokens_max(status):
            shares.append(status.kv_tokens_used / kv_tokens_max(status))
    return max(shares, default=None)
