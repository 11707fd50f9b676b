"""Takes what the leader hears anyway and keeps it as windows, grades and events. Its failures are nobody else's.

Called on the paths of heartbeats and replies: everything there is O(1) and waits for nothing. Judging machines is done
by `tick`, a few at a time.
"""

import functools
from collections.abc import Callable, Sequence
from math import inf
from typing import Any, TypeVar

import structlog
from silentswarm.fellow.v1 import fellow_link_pb2 as link_pb2
from swarm_core.clock import Clock
from swarm_core.errors import SwarmError

from swarm_leader.domain.incidents import IncidentRecord
from swarm_leader.domain.leases import FellowState
from swarm_leader.domain.records import MAIN_POOL
from swarm_leader.flows.board import Board
from swarm_leader.flows.registry import Fellow, Registry
from swarm_leader.telemetry.grades import Grade, grade, judge
from swarm_leader.telemetry.pool import NodeFigures, NodeView, PoolView, by_name, node_figures, signals_of
from swarm_leader.telemetry.samples import sample_of
from swarm_leader.telemetry.serving import Reply, ServingWindow
from swarm_leader.telemetry.timeline import Timeline
from swarm_leader.telemetry.window import Window

log = structlog.get_logger()
JUDGED_S = 10.0  # a machine is judged at least this often, while there are few
JUDGED_AT_ONCE = 20  # a judgement costs 0.7 ms; more machines are judged less often
NEW_S = 2.0  # a machine whose record is younger joined just now
_NEVER = -inf, NodeFigures(observed_s=0.0)
Method = TypeVar("Method", bound=Callable[..., None])


def harmless(method: Method) -> Method:
    """A method whose failure is nobody's: it is logged, the first and then ever more rarely."""

    @functools.wraps(method)
    def guarded(self: "Telemetry", *args: Any, **kwargs: Any) -> None:
        try:
            method(self, *args, **kwargs)
        except Exception:
            self.failures += 1
            if self.failures & (self.failures - 1) == 0:
                log.exception("telemetry failed and goes on", failures=self.failures)

    return guarded  # type: ignore[return-value]


class Telemetry:
    """Every machine the leader has seen since it started. failures: of its own, since then."""

    def __init__(self, registry: Registry, board: Board, clock: Clock, heartbeat_s: float) -> None:
        self.timeline = Timeline(clock)
        self.failures = 0
        self.heartbeat_s = heartbeat_s
        self._registry = registry
        self._board = board
        self._clock = clock
        self._windows: dict[str, Window] = {}
        self._figures: dict[str, tuple[float, NodeFigures]] = {}  # with when it was judged
        self._grades: dict[str, Grade] = {}
        self._states: dict[str, FellowState] = {}
        self._names: dict[str, tuple[str, str]] = {}  # name and pool, also of one that was just deleted
        self._serving: dict[str, ServingWindow] = {}
        self._draining: set[str] = set()

    @harmless
    def take_registered(self, fellow: Fellow) -> None:
        """A machine registered."""
        now_s = self._clock.monotonic_s()
        window = self._windows.get(fellow.fellow_id)
        is_new = window is None and self._clock.unix_s() - fellow.record.joined_s < NEW_S
        if window is None:
            self._windows[fellow.fellow_id] = Window(now_s, self.heartbeat_s)
        else:
            window.reconnects.add(now_s)
        self._names[fellow.fellow_id] = fellow.name, fellow.record.pool
        self._states[fellow.fellow_id] = FellowState.CONNECTED
        self._say(fellow, "joined" if is_new else "returned", "it is new here" if is_new else "it is connected again")

    @harmless
    def take_heartbeat(self, fellow: Fellow, heartbeat: link_pb2.Heartbeat) -> None:
        """A machine reported."""
        window = self._windows.get(fellow.fellow_id)
        if window is not None:
            window.note_heartbeat(self._clock.monotonic_s(), sample_of(heartbeat))

    @harmless
    def take_link_end(self, fellow: Fellow, why: SwarmError) -> None:
        """A machine's link ended."""
        if self._registry.get(fellow.fellow_id) is fellow:  # else a newer link took its place, or it was deleted
            self._states[fellow.fellow_id] = FellowState.SILENT
            self._say(fellow, "silent", why.message)

    @harmless
    def take_stage_event(self, fellow: Fellow, event: link_pb2.StageEvent) -> None:
        """A stage's life changed without a signal."""
        if event.kind == link_pb2.STAGE_EVENT_KIND_CRASHED and self._is_its_own(fellow, event):
            if (window := self._windows.get(fellow.fellow_id)) is not None:
                window.note_crash(self._clock.monotonic_s())
            self._say(fellow, "stage_crashed", f"{event.spec.model_id} stage {event.spec.stage_index}: {event.message}")

    @harmless
    def take_ping(self, fellow_id: str, round_trip_ms: float) -> None:
        """A machine answered PING."""
        if (window := self._windows.get(fellow_id)) is not None:
            window.note_round_trip(round_trip_ms)

    @harmless
    def take_reply(self, model_id: str, reply: Reply) -> None:
        """A reply of a placed model ended."""
        placement = self._board.get(model_id)
        if placement is None or not placement.record.stages:
            return
        record, now_s = placement.record, self._clock.monotonic_s()
        first = self._registry.get(record.stages[0].fellow_id)
        pool = first.record.pool if first is not None else MAIN_POOL
        self._serving.setdefault(pool, ServingWindow()).note(now_s, reply)
        if len(reply.stage_ms) == len(record.stages):
            for stage, step_ms in zip(record.stages, reply.stage_ms, strict=True):
                if (window := self._windows.get(stage.fellow_id)) is not None and step_ms > 0:
                    window.note_step(f"{record.placement_id}/{stage.stage_index}", step_ms)

    @harmless
    def take_incident(self, incident: IncidentRecord) -> None:
        """A fault of a placement opened, or is over."""
        placement = self._board.by_id(incident.placement_id)
        first = self._registry.get(placement.record.stages[0].fellow_id) if placement is not None else None
        pool = first.record.pool if first is not None else MAIN_POOL
        kind = "incident_opened" if incident.is_open else "incident_closed"
        what = incident.log[-1].what if incident.log else str(incident.kind)
        words = what if what.startswith(incident.model_id) else f"{incident.model_id}: {what}"
        self.timeline.add(kind, words, pool)

    @harmless
    def tick(self) -> None:
        """Notice what nobody tells: leases that ran out, machines that were deleted; judge those whose turn it is."""
        for fellow in self._registry.all():
            state = self._registry.state(fellow)
            is_news = self._states.get(fellow.fellow_id, state) is not state
            if state is FellowState.LOST and is_news and self._is_missed(fellow.fellow_id):
                self._say(fellow, "lost", f"no heartbeat for {self._registry.leases.lease_s:g} s")
            self._states[fellow.fellow_id] = state
            self._note_draining(fellow)
        for fellow_id in [one for one in self._states if self._registry.get(one) is None]:
            self._forget(fellow_id)
        now_s = self._clock.monotonic_s()
        due = [
            (judged_s, fellow_id)
            for fellow_id in self._windows
            if (judged_s := self._figures[fellow_id][0] if fellow_id in self._figures else -1.0)
            <= now_s - self._every_s
        ]
        for _, fellow_id in sorted(due)[:JUDGED_AT_ONCE]:
            self._judge(fellow_id, now_s)

    def node(self, fellow: Fellow) -> NodeView:
        """One machine, as it was judged last."""
        _, figures = self._figures.get(fellow.fellow_id, _NEVER)
        state = self._registry.state(fellow).value
        given = self._grades.get(fellow.fellow_id)
        return NodeView(fellow.fellow_id, fellow.name, fellow.record.pool, state, figures, given)

    def pool(self, pool: str) -> PoolView:
        """A pool, as its machines were judged last."""
        nodes = [self.node(fellow) for fellow in self._registry.all() if fellow.record.pool == pool]
        return PoolView(pool, by_name(nodes), self.serving_of(pool).figures(self._clock.monotonic_s()))

    def pools(self) -> Sequence[str]:
        """Every pool that has a machine; "main" is always there."""
        return sorted({MAIN_POOL, *(fellow.record.pool for fellow in self._registry.all())})

    def serving_of(self, pool: str) -> ServingWindow:
        """How its replies went."""
        return self._serving.get(pool) or ServingWindow()

    @property
    def _every_s(self) -> float:
        return min(JUDGED_S, 2 * self.heartbeat_s)

    def _judge(self, fellow_id: str, now_s: float) -> None:
        figures = node_figures(self._windows[fellow_id], now_s)
        self._figures[fellow_id] = now_s, figures
        score = judge(signals_of(figures))
        if score is None:
            return
        before = self._grades.get(fellow_id)
        given = self._grades[fellow_id] = grade(score, before, now_s)
        if before is not None and given.band != before.band:
            name, pool = self._names.get(fellow_id, (fellow_id, MAIN_POOL))
            why = "; ".join(reason.words for reason in score.reasons) or "nothing is wrong with it"
            self.timeline.add(
                "graded", f"{before.band} to {given.band} ({score.score:.0f} of 100): {why}", pool, fellow_id, name
            )

    def _is_its_own(self, fellow: Fellow, event: link_pb2.StageEvent) -> bool:
        """Whether a fellow has a say on a stage: it should hold it, or holds a cover of it."""
        placement_id, index = event.spec.placement_id, event.spec.stage_index
        is_cover = (placement_id, index) in fellow.covers and self._board.by_id(placement_id) is not None
        return is_cover or self._board.is_wanted(placement_id, fellow.fellow_id, index)

    def _is_missed(self, fellow_id: str) -> bool:
        """Whether it was there since the leader started, or should be: one that was long gone is no news."""
        return fellow_id in self._windows or bool(self._board.holding(fellow_id))

    def _note_draining(self, fellow: Fellow) -> None:
        """A person, or the policy, took a machine out of service, or back."""
        if fellow.record.draining and fellow.fellow_id not in self._draining:
            self._draining.add(fellow.fellow_id)
            self._say(fellow, "drained", "it is emptied, and takes no more stages")
        elif not fellow.record.draining and fellow.fellow_id in self._draining:
            self._draining.discard(fellow.fellow_id)
            self._say(fellow, "undrained", "it takes stages again")

    def _forget(self, fellow_id: str) -> None:
        name, pool = self._names.pop(fellow_id, (fellow_id, MAIN_POOL))
        self.timeline.add("deleted", "it is no machine of this swarm any more", pool, fellow_id, name)
        self._draining.discard(fellow_id)
        for kept in (self._states, self._windows, self._figures, self._grades):
            kept.pop(fellow_id, None)

    def _say(self, fellow: Fellow, kind: str, words: str) -> None:
        self.timeline.add(kind, words, fellow.record.pool, fellow.fellow_id, fellow.name)
