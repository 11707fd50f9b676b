"""How a placement ends, whatever the reason: recorded first, then replies are told, then memory is given back."""

import asyncio

import structlog
from silentswarm.fellow.v1 import fellow_link_pb2 as link_pb2
from swarm_core.errors import StaleEpoch, SwarmError

from swarm_leader.domain import ledger as rules
from swarm_leader.domain.records import PlacementRecord, PlacementState
from swarm_leader.flows.board import Board, Placement
from swarm_leader.flows.gate import Gates
from swarm_leader.flows.registry import Registry
from swarm_leader.flows.replies import Replies
from swarm_leader.flows.signals import Signals

log = structlog.get_logger()


class Ending:
    """Ends placements."""

    def __init__(
        self,
        board: Board,
        registry: Registry,
        signals: Signals,
        replies: Replies,
        gates: Gates,
        unload_timeout_s: float,
    ) -> None:
        self._board = board
        self._registry = registry
        self._signals = signals
        self._replies = replies
        self._gates = gates
        self._unload_timeout_s = unload_timeout_s

    async def end(
        self,
        placement: Placement,
        state: PlacementState,
        why: SwarmError,
        lost_fellow_id: str = "",
        fix: str = "",
        is_final: bool = True,
    ) -> bool:
        """End a placement that holds memory; its work, its replies and its stages end with it.

        why: what its replies are told; its message is the recorded reason, with `fix`, what a person can do about it.
        lost_fellow_id: a fellow that holds its stage no more. is_final: False when the model comes back by itself, and
        its replies wait for that. Returns False when it was over already. Never raises a
        SwarmError of a fellow that does not answer: such a fellow is told again when it next says what it holds.
        """
        held = placement.record
        placement.is_healing = placement.is_healing and not is_final

        def change(record: PlacementRecord) -> PlacementRecord:
            return rules.end(record, state, f"{why.message}; {fix}" if fix else why.message, lost_fellow_id)

        try:
            await self._board.save(placement, change, f"{state.value}: {why.message}")
        except StaleEpoch:
            return False
        except SwarmError as error:
            # Without a database memory is given back all the same; after a restart the fellows come back without it.
            log.error("placement ended, but not recorded", model=placement.model_id, why=error.message)
            self._board.show(placement, change(placement.record))
        log.info("placement ended", model=placement.model_id, state=state.value, why=why.message)
        task, placement.task = placement.task, None
        if is_final:
            self.turn_away(placement, why)
        if task is not None and task is not asyncio.current_task():
            task.cancel()
            await asyncio.wait({task}, timeout=self._unload_timeout_s)
        await self.release(held, lost_fellow_id)
        return True

    def turn_away(self, placement: Placement, why: SwarmError) -> None:
        """Nobody waits for it any more: its replies fail, and so does who stands at its gate."""
        placement.is_healing = False
        self._replies.fail_placement(placement.record.placement_id, why)
        self._gates.of(placement.model_id).turn_away(why)
        self._board.notify(placement.model_id)

    async def release(self, record: PlacementRecord, lost_fellow_id: str = "") -> None:
        """Have every fellow that is there end its stage."""
        fellow_ids = [
            stage.fellow_id
            for stage in record.stages
            if stage.fellow_id != lost_fellow_id and self._registry.is_connected(stage.fellow_id)
        ]
        await asyncio.gather(*(self.unload_stage(fellow_id, record.placement_id) for fellow_id in fellow_ids))

    async def unload_stage(self, fellow_id: str, placement_id: str) -> None:
        """Have one fellow end its stage; what goes wrong is logged, and repaired by its next heartbeat."""
        signal = link_pb2.Signal(unload=link_pb2.UnloadSignal(placement_id=placement_id))
        try:
            await self._signals.send(self._registry.link_of(fellow_id), signal, self._unload_timeout_s)
        except SwarmError as error:
            log.warning("unload failed", fellow=self._registry.name_of(fellow_id), why=error.message)
            return
        fellow = self._registry.get(fellow_id)
        if fellow is not None:
            fellow.drop_stage(placement_id)
