"""After a start of the leader: what the ledger says is held is waited for, for one lease. Then faults decide."""

from dataclasses import replace

import structlog
from swarm_core.errors import FellowLost

from swarm_leader.domain.ports import Ledger
from swarm_leader.domain.records import PlacementRecord, PlacementState
from swarm_leader.flows.board import Board
from swarm_leader.flows.ending import Ending
from swarm_leader.flows.registry import Registry

log = structlog.get_logger()


async def recover(ledger: Ledger, board: Board, registry: Registry, ending: Ending) -> None:
    """Show every open placement again; those that held memory wait for their fellows as RECOVERING.

    The registry must know the fellows already. Raises SwarmErrors of the store.
    """
    for record in await ledger.open():
        if not record.state.holds_memory:
            board.adopt(record)
            continue
        placement = await board.begin(_recovering(record), "the leader started")
        gone = next((stage for stage in record.stages if registry.get(stage.fellow_id) is None), None)
        if gone is not None:
            why = FellowLost(f"a fellow of {record.model_id} was deleted", fellow=gone.fellow_id)
            await ending.end(placement, PlacementState.FAILED, why, gone.fellow_id)
        log.info("placement recovers", model=record.model_id, was=record.state.value, stages=len(record.stages))


def _recovering(record: PlacementRecord) -> PlacementRecord:
    return replace(record, state=PlacementState.RECOVERING, reason="the leader started; waiting for the fellows")
