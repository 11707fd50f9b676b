"""What no fleet could do, refused before anybody looks for fellows. Pure."""

from collections.abc import Sequence

from swarm_core.errors import BadRequest, FellowNotFound, NoFellow
from swarm_core.manifest import Manifest

from swarm_leader.domain.capabilities import FellowFacts
from swarm_leader.domain.planning.plan import PlanRequest
from swarm_leader.domain.planning.refusals import too_few


def check_request(manifest: Manifest, fellows: Sequence[FellowFacts], request: PlanRequest) -> None:
    """Refuse what no fleet could do, then an empty fleet.

    Raises BadRequest, NoFellow, FellowNotFound, TooFewFellows.
    """
    _check_stages(manifest, request)
    asked = request.fellow_ids
    if len(set(asked)) != len(asked):
        raise BadRequest("a fellow is named twice; every stage needs a fellow of its own", field="fellow_ids")
    if asked and request.num_stages and len(asked) > request.num_stages:
        raise BadRequest(
            f"{len(asked)} fellows are named for {request.num_stages} stages; name one per stage or none",
            field="fellow_ids",
            fellows=len(asked),
            num_stages=request.num_stages,
        )
    if not fellows:
        raise NoFellow("no fellow is connected; start one with: swarm-fellow --leader HOST:PORT", connected=0)
    names = {fellow.fellow_id: fellow.name for fellow in fellows}
    for fellow_id in asked:
        if fellow_id not in names:
            raise FellowNotFound(f"no fellow {fellow_id} is connected", fellow=fellow_id)
    if asked and request.num_stages > len(asked):
        raise too_few(request.num_stages, [names.get(fellow_id, fellow_id) for fellow_id in asked], "named")


def _check_stages(manifest: Manifest, request: PlanRequest) -> None:
    """The number of stages against what the model is made of."""
    stage_count = request.num_stages or len(request.fellow_ids)
    field = "num_stages" if request.num_stages else "fellow_ids"
    if stage_count > manifest.layer_count:
        raise BadRequest(
            f"{stage_count} stages are more than the {manifest.layer_count} layers of {manifest.model_id}; "
            f"ask for at most {manifest.layer_count}",
            field=field,
            num_stages=stage_count,
            layers=manifest.layer_count,
        )
    split = manifest.split
    if split is not None and not split.recorded and stage_count not in (0, split.stage_count):
        raise BadRequest(
            f"{manifest.model_id} was trained over {split.stage_count} stages and does not record where it was cut, so "
            f"it is served over {split.stage_count} stages and not over {stage_count}",
            field=field,
            num_stages=stage_count,
            trained_stages=split.stage_count,
        )
