"""Who holds which layers of a model. Pure: facts in, a plan or a refusal with numbers out. No clock, no I/O."""

from collections.abc import Sequence
from dataclasses import replace

from swarm_core.errors import BadRequest, FellowNotFound, NoFellow, SwarmError
from swarm_core.manifest import Manifest

from swarm_leader.domain.capabilities import FellowFacts, find_lack, find_wire_gap
from swarm_leader.domain.placing import place, place_any_order, too_small
from swarm_leader.domain.plan import Plan, PlanRequest, ServeDefaults
from swarm_leader.domain.records import Transport
from swarm_leader.domain.refusals import busy, no_shared_wire, not_enough_able, refuse_lack, too_few

USUAL = ServeDefaults()


def plan(
    manifest: Manifest,
    fellows: Sequence[FellowFacts],
    request: PlanRequest,
    defaults: ServeDefaults = USUAL,
) -> Plan:
    """Place a model on connected fellows.

    Every layer is on exactly one stage, every stage has at least one layer and a fellow of its own, and weights, KV
    and working buffers of a stage fit its fellow. A fellow all of whose places are taken by loads gets no other model
    meanwhile. The same facts give the same plan, whatever their order.
    Raises NoFellow, TooFewFellows, NotEnoughMemory, CapabilityMissing, FellowNotFound, BadRequest, ServableCorrupt,
    Conflict (names the model that loads); nothing else.
    """
    longest = manifest.context_tokens_max
    planned = _plan(manifest, fellows, request, defaults)
    if not 0 < longest < request.context_tokens:
        return planned
    note = f"context cut from {request.context_tokens:,} to {longest:,} tokens, the most this model takes"
    return replace(planned, notes=(note, *planned.notes))


def _plan(manifest: Manifest, fellows: Sequence[FellowFacts], request: PlanRequest, defaults: ServeDefaults) -> Plan:
    """As `plan`, without a word about a context that was cut."""
    _check_request(manifest, fellows, request)
    context_tokens = request.context_tokens or defaults.context_tokens
    if manifest.context_tokens_max:
        context_tokens = min(context_tokens, manifest.context_tokens_max)
    if request.fellow_ids:
        by_id = {fellow.fellow_id: fellow for fellow in fellows}
        ring = [by_id[fellow_id] for fellow_id in request.fellow_ids]
        if (gap := find_wire_gap(ring)) is not None:
            raise no_shared_wire(*gap)
        for fellow in ring:
            refuse_lack(fellow, manifest, len(ring), request.transport)
        if any(fellow.busy_with for fellow in ring):
            raise busy(ring)
        placed = place(manifest, ring, request.transport, context_tokens, defaults)
        if placed is None:
            raise too_small(manifest, ring, context_tokens, defaults)
        return placed
    return _choose_unless_busy(manifest, fellows, request, context_tokens, defaults)


def _check_request(manifest: Manifest, fellows: Sequence[FellowFacts], request: PlanRequest) -> None:
    """Refuse what no fleet could do, then an empty fleet."""
    asked = request.fellow_ids
    stage_count = request.num_stages or len(asked)
    if stage_count > manifest.layer_count:
        raise BadRequest(
            f"{stage_count} stages are more than the {manifest.layer_count} layers of {manifest.model_id}; "
            f"ask for at most {manifest.layer_count}",
            field="num_stages" if request.num_stages else "fellow_ids",
            num_stages=stage_count,
            layers=manifest.layer_count,
        )
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


def _choose_unless_busy(
    manifest: Manifest,
    fellows: Sequence[FellowFacts],
    request: PlanRequest,
    context_tokens: int,
    defaults: ServeDefaults,
) -> Plan:
    """The leader's choice among the fellows with a place. Raises Conflict only where waiting for one would help."""
    idle = [fellow for fellow in fellows if not fellow.busy_with]
    if len(idle) == len(fellows):
        return _choose(manifest, fellows, request, context_tokens, defaults)
    try:
        return _choose(manifest, idle, request, context_tokens, defaults)
    except SwarmError:
        _choose(manifest, fellows, request, context_tokens, defaults)  # refuses what no wait would change
        raise busy(fellows) from None


def _choose(
    manifest: Manifest,
    fellows: Sequence[FellowFacts],
    request: PlanRequest,
    context_tokens: int,
    defaults: ServeDefaults,
) -> Plan:
    """The leader's choice: the roomiest fellows that can, as few as fit unless the request counts them."""
    ranked = sorted(fellows, key=lambda one: (one.free_bytes is None, -(one.free_bytes or 0), one.name, one.fellow_id))
    if not any(fellow.capabilities.serve for fellow in ranked):
        names = ", ".join(sorted(fellow.name for fellow in ranked))
        raise NoFellow(f"none of the connected fellows serves models ({names})", connected=len(ranked))
    if request.num_stages:
        able = _able(ranked, manifest, request.num_stages, request.transport)
        ring = able[: request.num_stages]
        if len(ring) < request.num_stages:
            raise not_enough_able(ranked, able, manifest, request)
        placed = place_any_order(manifest, ring, request.transport, context_tokens, defaults)
        if placed is None:
            raise too_small(manifest, ring, context_tokens, defaults)
        return placed
    tried: list[FellowFacts] = []
    for stage_count in range(1, min(len(ranked), manifest.layer_count) + 1):
        ring = _able(ranked, manifest, stage_count, request.transport)[:stage_count]
        if len(ring) < stage_count:
            continue
        placed = place_any_order(manifest, ring, request.transport, context_tokens, defaults)
        if placed is not None:
            return placed
        tried = ring
    if tried:
        raise too_small(manifest, tried, context_tokens, defaults)
    serving = next(fellow for fellow in ranked if fellow.capabilities.serve)
    for stage_count in range(1, len(ranked) + 1):
        refuse_lack(serving, manifest, stage_count, request.transport)
    raise too_few(2, [serving.name], "able")


def _able(ranked: Sequence[FellowFacts], manifest: Manifest, count: int, transport: Transport) -> list[FellowFacts]:
    return [fellow for fellow in ranked if find_lack(fellow, manifest.model_type, count, transport) is None]
