"""What is known of every stage of a ring now, asked of their fellows where they can be asked. Judges nothing."""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

from silentswarm.fellow.v1 import fellow_link_pb2 as link_pb2
from swarm_core.errors import DeadlinePassed, FellowLost, SwarmError

from swarm_leader.domain.healing.judge import StageFacts
from swarm_leader.domain.leases import FellowState
from swarm_leader.domain.records import PlacementRecord, StageRecord
from swarm_leader.flows.board import Placement
from swarm_leader.flows.registry import Fellow, Registry
from swarm_leader.flows.signals import Signals

CHECK_S = 2.0
CHECK_MAX_S = 4.0  # of a fellow that says that it waits for its stage: a busy machine's may need 3 s to answer


class _Answer(Enum):
    """What comes of a CHECK."""

    ALIVE = 1
    DEAD = 2
    NONE = 3


@dataclass(frozen=True)
class Examined:
    """One look at a ring. silent: fellows that are connected and did not answer."""

    facts: tuple[StageFacts, ...]
    silent: frozenset[str] = frozenset()


class Examining:
    """Asks fellows after their stages. check_s: how long one has to say anything, in seconds."""

    def __init__(self, registry: Registry, signals: Signals, check_s: float = CHECK_S) -> None:
        self._registry = registry
        self._signals = signals
        self._check_s = check_s

    async def examine(self, placement: Placement, complaints: Collection[int]) -> Examined:
        """Look at every stage, all at the same time. complaints: stages to which a neighbour's link is broken."""
        stages = placement.record.stages
        alive = await asyncio.gather(*(self._check(placement, stage) for stage in stages))
        silent = {
            stage.fellow_id
            for stage, one in zip(stages, alive, strict=True)
            if one is _Answer.NONE and self._registry.is_connected(stage.fellow_id)
        }
        facts = tuple(
            self._facts(
                placement, stage, None if one is None else one is _Answer.ALIVE, stage.stage_index in complaints
            )
            for stage, one in zip(placement.record.stages, alive, strict=True)
        )
        return Examined(facts, frozenset(silent))

    async def _check(self, placement: Placement, stage: StageRecord) -> _Answer | None:
        """What a fellow says of its stage; None when it cannot be asked, or there is nothing to ask after."""
        placement_id = placement.record.placement_id
        fellow = self._registry.get(stage.fellow_id)
        if fellow is None or not fellow.capabilities.check or placement_id not in fellow.stages:
            return None
        signal = link_pb2.Signal(check=link_pb2.CheckSignal(placement_id=placement_id))
        until_s = asyncio.get_running_loop().time() + CHECK_MAX_S

        def wait_longer(_: link_pb2.SignalProgress) -> None:
            if not limit.expired():
                limit.reschedule(until_s)

        try:
            async with asyncio.timeout(self._check_s) as limit:
                link = self._registry.link_of(stage.fellow_id)
                answer = await self._signals.send(link, signal, CHECK_MAX_S, wait_longer)
        except (TimeoutError, DeadlinePassed):
            return _Answer.NONE
        except FellowLost:
            return None  # it is not connected any more, which says enough
        except SwarmError:
            return None
        return _Answer.ALIVE if answer.check.is_alive else _Answer.DEAD

    def _facts(
        self, placement: Placement, stage: StageRecord, is_alive: bool | None, is_complained_of: bool
    ) -> StageFacts:
        fellow = self._registry.get(stage.fellow_id)
        return StageFacts(
            stage_index=stage.stage_index,
            fellow_id=stage.fellow_id,
            fellow_name=self._registry.name_of(stage.fellow_id),
            is_connected=self._registry.is_connected(stage.fellow_id),
            is_lease_running=self._registry.leases.state(stage.fellow_id) is not FellowState.LOST,
            is_returning=fellow is not None and fellow.link is None,
            is_loaded=stage.state == "loaded",
            is_held=fellow is not None and holds(fellow, placement.record.placement_id, stage.stage_index),
            is_alive=is_alive,
            is_complained_of=is_complained_of,
        )


def are_connected(registry: Registry, record: PlacementRecord) -> bool:
    """Whether every fellow of a ring is there."""
    return all(registry.is_connected(stage.fellow_id) for stage in record.stages)


def holders_of(record: PlacementRecord) -> tuple[str, ...]:
    """Fellow ids, in ring order."""
    return tuple(stage.fellow_id for stage in record.stages)


def holds(fellow: Fellow, placement_id: str, stage_index: int) -> bool:
    """Whether a fellow says that it holds a stage: in its ring, or as a hot cover that WIRE switches in."""
    cover = fellow.covers.get((placement_id, stage_index))
    return placement_id in fellow.stages or (cover is not None and cover.is_hot)
