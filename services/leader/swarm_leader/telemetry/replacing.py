"""Asks the replacement policy now and then, and does as it is set: nothing, say so, or drain. Off by default."""

from collections.abc import Awaitable, Callable

import structlog
from swarm_core.clock import Clock
from swarm_core.errors import SwarmError

from swarm_leader.flows.registry import Registry
from swarm_leader.flows.tasks import TaskSet
from swarm_leader.telemetry.feed import Telemetry
from swarm_leader.telemetry.pool import NodeView
from swarm_leader.telemetry.replacement import Candidate, Proposal, Replace, propose

log = structlog.get_logger()
ASKED_S = 10.0
Drain = Callable[[str], Awaitable[object]]


class NodeReplacing:
    """One policy for each pool. drain: takes a machine out of service by its id; until it is set nothing does."""

    def __init__(self, mode: Replace, telemetry: Telemetry, registry: Registry, clock: Clock, tasks: TaskSet) -> None:
        self._mode = mode
        self._telemetry = telemetry
        self._registry = registry
        self._clock = clock
        self._tasks = tasks
        self.drain: Drain | None = None
        self._asked_s: float | None = None
        self._proposed_s: dict[str, float] = {}

    def tick(self) -> None:
        """Ask, if it is time."""
        now_s = self._clock.monotonic_s()
        if self._mode is Replace.OFF or (self._asked_s is not None and now_s - self._asked_s < ASKED_S):
            return
        self._asked_s = now_s
        for pool in self._telemetry.pools():
            machines = [self._candidate(node) for node in self._telemetry.pool(pool).nodes]
            proposal = propose(machines, now_s, self._proposed_s.get(pool))
            if proposal is not None:
                self._proposed_s[pool] = now_s
                self._act(pool, proposal)

    def _act(self, pool: str, proposal: Proposal) -> None:
        whose = pool, proposal.fellow_id, proposal.name
        self._telemetry.timeline.add("replacement_proposed", proposal.words, *whose)
        if self._mode is Replace.ON and self.drain is not None:
            self._tasks.start(self._carry_out(self.drain, pool, proposal), "replace a machine")

    async def _carry_out(self, drain: Drain, pool: str, proposal: Proposal) -> None:
        try:
            await drain(proposal.fellow_id)
        except SwarmError as error:
            log.warning("a machine could not be drained", fellow=proposal.name, why=error.message)
            return
        whose = pool, proposal.fellow_id, proposal.name
        self._telemetry.timeline.add("replacement_done", f"{proposal.name} is drained", *whose)

    def _candidate(self, node: NodeView) -> Candidate:
        fellow = self._registry.get(node.fellow_id)
        given = node.grade
        return Candidate(
            fellow_id=node.fellow_id,
            name=node.name,
            band=given.band if given else "",
            since_s=given.since_s if given else 0.0,
            score=given.score.score if given else 0.0,
            is_connected=node.state == "connected",
            is_draining=fellow is not None and fellow.record.draining,
            why="; ".join(reason.words for reason in given.score.reasons[:2]) if given else "",
        )
