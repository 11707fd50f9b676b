"""Whether a request can be answered by a ring: its tokens, how it draws, whether it goes on. Facts in, refusals out."""

from silentswarm.core.v1 import generation_pb2
from swarm_core.errors import BadRequest, CapabilityMissing

from swarm_leader.domain.ports import Catalog
from swarm_leader.flows.board import Board, Placement
from swarm_leader.flows.drawing import check_drawing
from swarm_leader.flows.registry import Fellow, Registry


class RingChecks:
    """Checks requests against models and the fellows that serve them."""

    def __init__(self, catalog: Catalog, board: Board, registry: Registry) -> None:
        self._catalog = catalog
        self._board = board
        self._registry = registry

    def tokens(self, model_id: str, generation: generation_pb2.Generation) -> None:
        """Token ids must be the model's, and as many as fit. Raises BadRequest with both numbers."""
        ids_by_field = {
            "prompt_ids": generation.prompt_ids.ids,
            "logit_bias": [bias.token for bias in generation.sampling.logit_bias],
            "resume": generation.resume.ids,
        }
        for field, ids in ids_by_field.items():
            if ids and max(ids) >= (size := self._catalog.get(model_id).vocabulary_size):
                raise BadRequest(
                    f"token {max(ids)} of {field} is not in the vocabulary of {model_id}, which has {size}",
                    field=field,
                    token=max(ids),
                    vocabulary_size=size,
                )
        count = len(generation.resume.ids)
        if count and count > (most := self._catalog.get(model_id).context_tokens_max):
            raise BadRequest(f"resume has {count} tokens; a reply of {model_id} has {most} at most", field="resume")

    def drawing(self, generation: generation_pb2.Generation, placement: Placement) -> None:
        """The ring must draw as the request asks. Raises CapabilityMissing."""
        check_drawing(generation, self._ring(placement))

    def resume(self, placement: Placement) -> None:
        """The ring must go on with replies that have begun. Raises CapabilityMissing."""
        if lacking := self._lacking_resume(placement):
            raise CapabilityMissing(
                f"fellow {lacking[0].name} lacks serve_resume: a reply that has begun cannot go on there; upgrade it",
                fellow=lacking[0].name,
                capability="serve_resume",
            )

    def can_resume(self, model_id: str) -> bool:
        """Whether the ring of a model goes on with replies that have begun."""
        serving = self._board.serving_of(model_id)
        return serving is not None and not self._lacking_resume(serving[0])

    def _ring(self, placement: Placement) -> list[Fellow]:
        """The fellows that serve a placement, but for those the registry has forgotten."""
        fellows = [self._registry.get(stage.fellow_id) for stage in placement.record.stages]
        return [fellow for fellow in fellows if fellow is not None]

    def _lacking_resume(self, placement: Placement) -> list[Fellow]:
        """A fellow that has not come back since the leader started has not said yet what it can do."""
        ring = self._ring(placement)
        return [fellow for fellow in ring if fellow.link is not None and not fellow.capabilities.serve_resume]
