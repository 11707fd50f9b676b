"""After a start of the leader: what the ledger says is held, and every open incident, is taken up where it stood."""

import structlog

from swarm_leader.domain import ledger as rules
from swarm_leader.domain.incidents import IncidentRecord
from swarm_leader.domain.ports import IncidentStore, Ledger
from swarm_leader.domain.records import PlacementState
from swarm_leader.flows.board import Board
from swarm_leader.flows.healing import Healing

log = structlog.get_logger()


async def recover(ledger: Ledger, incidents: IncidentStore, board: Board, healing: Healing) -> None:
    """Show every open placement again. Those that held memory heal: their fellows come back, or they are replaced.

    The registry must know the fellows already. Raises SwarmErrors of the store.
    """
    known = {incident.incident_id: incident for incident in await incidents.open()}
    for record in await ledger.open():
        if not record.state.holds_memory:
            placement = board.adopt(record)
            incident = _take(known, record.model_id) if record.state is PlacementState.FAILED else None
            if incident is not None:
                healing.await_fellow(placement, incident)
            continue
        reason = "the leader started; waiting for the fellows"
        placement = await board.begin(rules.recover(record, reason), "the leader started")
        healing.resume(placement, _take(known, record.model_id))
        log.info("placement recovers", model=record.model_id, was=record.state.value, stages=len(record.stages))
    for incident in known.values():
        await healing.forget(incident)


def _take(known: dict[str, IncidentRecord], model_id: str) -> IncidentRecord | None:
    """The newest open incident of a model; the others stay."""
    mine = [incident for incident in known.values() if incident.model_id == model_id]
    return known.pop(mine[-1].incident_id) if mine else None
