"""What a pool and its machines look like now, from their windows. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from swarm_leader.telemetry.grades import Grade, Signals
from swarm_leader.telemetry.serving import ServingFigures
from swarm_leader.telemetry.window import Window, median, percentile

# Names by which history is asked for.
NODE_METRICS = (
    "availability",
    "score",
    "leader_round_trip_ms",
    "peer_round_trip_ms",
    "temperature_c",
    "power_w",
    "busy_share",
    "cpu_busy_share",
    "memory_free_bytes",
    "disk_free_bytes",
    "reconnects",
    "stage_crashes",
    "slowdown",
)
POOL_METRICS = (
    "availability",
    "leader_round_trip_ms",
    "connected",
    "completed",
    "failed",
    "tokens_per_s",
    "first_token_ms",
    "queue_ms",
)
METRICS = tuple(sorted({*NODE_METRICS, *POOL_METRICS}))


@dataclass(frozen=True)
class NodeFigures:
    """One machine now; the spec of every field is leader.v1.NodeMetrics. None is unknown."""

    observed_s: float
    availability: float | None = None
    leader_round_trip_ms: float | None = None
    leader_round_trip_p95_ms: float | None = None
    peer_round_trip_ms: float | None = None
    temperature_c: float | None = None
    hot_c: float | None = None
    power_w: float | None = None
    busy_share: float | None = None
    cpu_busy_share: float | None = None
    memory_free_bytes: int | None = None
    disk_free_bytes: int | None = None
    reconnects: int = 0
    stage_crashes: int = 0
    out_of_memory: int | None = None
    errors: int | None = None
    slowdown: float | None = None


@dataclass(frozen=True)
class NodeView:
    """A machine with its name, its state and its grade."""

    fellow_id: str
    name: str
    pool: str
    state: str
    figures: NodeFigures
    grade: Grade | None = None

    def metrics(self) -> dict[str, float]:
        """What is known, by the names of NODE_METRICS."""
        known = {name: getattr(self.figures, name, None) for name in NODE_METRICS}
        known["score"] = self.grade.score.score if self.grade is not None else None
        return {name: float(figure) for name, figure in known.items() if figure is not None}


@dataclass(frozen=True)
class PoolView:
    """A pool. availability: of all its machines that have one."""

    pool: str
    nodes: tuple[NodeView, ...]
    serving: ServingFigures

    @property
    def connected(self) -> int:
        """Machines whose link is open."""
        return sum(node.state == "connected" for node in self.nodes)

    @property
    def availability(self) -> float | None:
        """The mean over its machines."""
        known = [node.figures.availability for node in self.nodes if node.figures.availability is not None]
        return sum(known) / len(known) if known else None

    @property
    def leader_round_trip_ms(self) -> float | None:
        """Of its machines' middle ones, the middle one."""
        return median(node.figures.leader_round_trip_ms for node in self.nodes)

    def metrics(self, minute: ServingFigures) -> dict[str, float]:
        """What is known, by the names of POOL_METRICS. minute: of the last minute alone."""
        known = {
            "availability": self.availability,
            "leader_round_trip_ms": self.leader_round_trip_ms,
            "connected": self.connected,
            "completed": minute.completed,
            "failed": minute.failed,
            "tokens_per_s": minute.tokens_per_s,
            "first_token_ms": minute.first_token_ms,
            "queue_ms": minute.queue_ms,
        }
        return {name: float(figure) for name, figure in known.items() if figure is not None}


def node_figures(window: Window, now_s: float) -> NodeFigures:
    """A machine's window in figures."""
    trips_ms = window.figures("leader_round_trip_ms", now_s)
    last = window.last
    return NodeFigures(
        observed_s=window.observed_s(now_s),
        availability=window.availability(now_s),
        leader_round_trip_ms=median(trips_ms),
        leader_round_trip_p95_ms=percentile(trips_ms, 0.95),
        peer_round_trip_ms=median(window.figures("peer_round_trip_ms", now_s)),
        temperature_c=last.temperature_c if last else None,
        hot_c=percentile(window.figures("temperature_c", now_s), 0.95),
        power_w=last.power_w if last else None,
        busy_share=median(window.figures("busy_share", now_s)),
        cpu_busy_share=median(window.figures("cpu_busy_share", now_s)),
        memory_free_bytes=last.memory_free_bytes if last else None,
        disk_free_bytes=last.disk_free_bytes if last else None,
        reconnects=window.reconnects.count(now_s),
        stage_crashes=window.crashes.count(now_s),
        out_of_memory=window.out_of_memory.count(now_s) if window.counts("out_of_memory") else None,
        errors=window.errors.count(now_s) if window.counts("errors") else None,
        slowdown=window.slowdown(),
    )


def signals_of(figures: NodeFigures) -> Signals:
    """What its grade goes by."""
    return Signals(
        availability=figures.availability,
        observed_s=figures.observed_s,
        reconnects=figures.reconnects,
        crashes=figures.stage_crashes,
        out_of_memory=figures.out_of_memory or 0,
        errors=figures.errors or 0,
        round_trip_ms=figures.leader_round_trip_ms,
        temperature_c=figures.hot_c,
        slowdown=figures.slowdown,
    )


def by_name(nodes: Sequence[NodeView]) -> tuple[NodeView, ...]:
    """In the order in which they are shown."""
    return tuple(sorted(nodes, key=lambda node: (node.name, node.fellow_id)))
