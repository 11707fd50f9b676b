"""leader.v1.Resilience: what broke, and what was done about it. Thin."""

import grpc
from silentswarm.leader.v1 import resilience_pb2, resilience_pb2_grpc
from swarm_core.errors import BadRequest

from swarm_leader.domain.incidents import IncidentRecord
from swarm_leader.domain.ports import IncidentStore

PAGE_USUAL = 50
PAGE_MAX = 200


class ResilienceServicer(resilience_pb2_grpc.ResilienceServicer):
    """Reads incidents."""

    def __init__(self, store: IncidentStore) -> None:
        self._store = store

    async def ListIncidents(
        self, request: resilience_pb2.ListIncidentsRequest, context: grpc.aio.ServicerContext
    ) -> resilience_pb2.ListIncidentsResponse:
        if request.page_size > PAGE_MAX:
            raise BadRequest(f"page_size is at most {PAGE_MAX}, not {request.page_size}", field="page_size")
        found = await self._store.newest(request.page_size or PAGE_USUAL, request.model_id, request.skip)
        return resilience_pb2.ListIncidentsResponse(incidents=[incident_to_proto(one) for one in found])


def incident_to_proto(incident: IncidentRecord) -> resilience_pb2.Incident:
    """leader.v1.Incident."""
    lost = zip(incident.stages, incident.lost, incident.replacements, strict=True)
    return resilience_pb2.Incident(
        incident_id=incident.incident_id,
        placement_id=incident.placement_id,
        model_id=incident.model_id,
        epoch=incident.epoch,
        kind=incident.kind.value,
        opened_s=incident.opened_s,
        step=incident.step,
        stages=[
            resilience_pb2.IncidentStage(stage_index=index, lost_fellow=name, replacement=replacement)
            for index, name, replacement in lost
        ],
        log=[resilience_pb2.IncidentStep(at_s=step.at_s, what=step.what) for step in incident.log],
        closed_s=incident.closed_s,
        outcome=incident.outcome.value,
        detected_ms=incident.detected_ms,
        recovered_ms=incident.recovered_ms,
    )
