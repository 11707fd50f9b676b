"""Who holds which layers of a model. Pure: facts in, a plan or a refusal with numbers out. No clock, no I/O."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from swarm_core.errors import (
    BadRequest,
    CapabilityMissing,
    Conflict,
    FellowNotFound,
    NoFellow,
    NotEnoughMemory,
    SwarmError,
    TooFewFellows,
)
from swarm_core.manifest import DTYPE_BYTES, Manifest

from swarm_leader.domain.batch import plan_batch_max
from swarm_leader.domain.budget import ModelCost, cost_of, stored_dtype
from swarm_leader.domain.capabilities import UNLIMITED, FellowFacts, find_lack, find_wire_gap
from swarm_leader.domain.records import StageRecord, Transport
from swarm_leader.domain.routes import plan_routes
from swarm_leader.domain.split import RingBudget, cut_layers, is_fitting, largest_kv_tokens, needed_bytes

HALVES = ("F16", "BF16")
SERVED_DTYPES = ("F32", *HALVES)


@dataclass(frozen=True)
class PlanRequest:
    """What is asked for. num_stages 0: as few as fit. fellow_ids: ids in ring order; empty is the planner's choice."""

    num_stages: int = 0
    fellow_ids: tuple[str, ...] = ()
    transport: Transport = Transport.AUTO
    context_tokens: int = 0


@dataclass(frozen=True)
class ServeDefaults:
    """The operator's choices. in_flight 0: four per stage. dtype "": what the fellows compute in.

    batch_max: most sessions of one decode step, 0 is no cap; None leaves it to the cards.
    """

    context_tokens: int = 4096
    typical_tokens: int = 1024
    in_flight: int = 0
    dtype: str = ""
    batch_max: int | None = None


@dataclass(frozen=True)
class Plan:
    """A placement that fits, not yet recorded.

    notes: what was chosen for lack of a capability, in words. batch_max: sessions of one decode step, 0 is no cap.
    """

    stages: tuple[StageRecord, ...]
    transport: Transport
    dtype: str
    context_tokens: int
    kv_tokens: int
    in_flight_max: int
    notes: tuple[str, ...]
    batch_max: int = 0


def plan(
    manifest: Manifest,
    fellows: Sequence[FellowFacts],
    request: PlanRequest,
    defaults: ServeDefaults = ServeDefaults(),
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
            raise _no_shared_wire(*gap)
        for fellow in ring:
            _refuse_lack(fellow, manifest, len(ring), request.transport)
        if any(fellow.busy_with for fellow in ring):
            raise _busy(ring)
        placed = _place(manifest, ring, request.transport, context_tokens, defaults)
        if placed is None:
            raise _too_small(manifest, ring, context_tokens, defaults)
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
        raise _too_few(request.num_stages, [names.get(fellow_id, fellow_id) for fellow_id in asked], "named")


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
        raise _busy(fellows) from None


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
            raise _not_enough_able(ranked, able, manifest, request)
        placed = _place_any_order(manifest, ring, request.transport, context_tokens, defaults)
        if placed is None:
            raise _too_small(manifest, ring, context_tokens, defaults)
        return placed
    tried: list[FellowFacts] = []
    for stage_count in range(1, min(len(ranked), manifest.layer_count) + 1):
        ring = _able(ranked, manifest, stage_count, request.transport)[:stage_count]
        if len(ring) < stage_count:
            continue
        placed = _place_any_order(manifest, ring, request.transport, context_tokens, defaults)
        if placed is not None:
            return placed
        tried = ring
    if tried:
        raise _too_small(manifest, tried, context_tokens, defaults)
    serving = next(fellow for fellow in ranked if fellow.capabilities.serve)
    for stage_count in range(1, len(ranked) + 1):
        _refuse_lack(serving, manifest, stage_count, request.transport)
    raise _too_few(2, [serving.name], "able")


def _able(ranked: Sequence[FellowFacts], manifest: Manifest, count: int, transport: Transport) -> list[FellowFacts]:
    return [fellow for fellow in ranked if find_lack(fellow, manifest.model_type, count, transport) is None]


def _place_any_order(
    manifest: Manifest, ring: Sequence[FellowFacts], transport: Transport, context_tokens: int, defaults: ServeDefaults
) -> Plan | None:
    """Roomiest first; if that does not fit, the two roomiest at the ends, which hold embeddings and head as well."""
    placed = _place(manifest, ring, transport, context_tokens, defaults)
    if placed is None and len(ring) > 2:
        placed = _place(manifest, [ring[0], *ring[2:], ring[1]], transport, context_tokens, defaults)
    return placed


def _place(
    manifest: Manifest, ring: Sequence[FellowFacts], transport: Transport, context_tokens: int, defaults: ServeDefaults
) -> Plan | None:
    """Cut the model over this very ring. None when it does not fit even with one session of the longest context."""
    dtype = _serving_dtype(manifest, ring, defaults)
    cost = cost_of(manifest, dtype, _prefill_chunk_tokens(ring))
    free = tuple(fellow.free_bytes for fellow in ring)
    notes: list[str] = []
    sizing = _size_sessions(cost, ring, RingBudget(free, context_tokens, context_tokens, 1), defaults, notes)
    cuts = cut_layers(cost, sizing) if sizing else None
    if sizing is None or cuts is None:
        return None
    routes, route_notes = plan_routes(ring, transport)
    stages = tuple(
        StageRecord(
            stage_index=index,
            fellow_id=fellow.fellow_id,
            layer_start=layers.layer_start,
            layer_stop=layers.layer_stop,
            weight_bytes=cost.weight_bytes(layers),
            kv_bytes=cost.kv_bytes(layers, sizing.kv_tokens),
            working_bytes=cost.working_bytes(layers.is_last, context_tokens, sizing.in_flight),
            free_bytes=fellow.free_bytes,
            route=routes[index],
        )
        for index, (fellow, layers) in enumerate(zip(ring, cuts, strict=True))
    )
    batch_max, batch_notes = plan_batch_max(ring, defaults.batch_max)
    return Plan(
        stages=stages,
        transport=transport,
        dtype=dtype,
        context_tokens=context_tokens,
        kv_tokens=sizing.kv_tokens,
        in_flight_max=sizing.in_flight,
        notes=(*notes, *route_notes, *batch_notes),
        batch_max=batch_max,
    )


def _size_sessions(
    cost: ModelCost, ring: Sequence[FellowFacts], least: RingBudget, defaults: ServeDefaults, notes: list[str]
) -> RingBudget | None:
    """Sessions at once and KV positions for all of them; None when not even `least` (one whole context) fits."""
    if not is_fitting(cost, least):
        return None
    by_tokens = [fellow for fellow in ring if fellow.capabilities.serve_kv_budget]
    in_flight = defaults.in_flight or (4 if len(by_tokens) == len(ring) else 2) * len(ring)
    one_by_one = [fellow.name for fellow in ring if fellow.capabilities.in_flight_max is None]
    if one_by_one and in_flight > 1:
        notes.append(f"{_who_lack(one_by_one)} serve_concurrent: the ring runs one reply at a time")
    in_flight = min(in_flight, *(max(1, fellow.capabilities.in_flight_max or 1) for fellow in ring))
    if len(by_tokens) < len(ring):
        lacking = [fellow.name for fellow in ring if not fellow.capabilities.serve_kv_budget]
        notes.append(f"{_who_lack(lacking)} serve_kv_budget: every reply in flight is planned with a whole context")
        return _whole_contexts(cost, least, in_flight)
    while in_flight > 1 and not is_fitting(cost, replace(least, in_flight=in_flight)):
        in_flight -= 1
    budget = replace(least, in_flight=in_flight)
    wanted = max(least.context_tokens, in_flight * defaults.typical_tokens)
    return replace(budget, kv_tokens=largest_kv_tokens(cost, budget, min(wanted, UNLIMITED)))


def _whole_contexts(cost: ModelCost, least: RingBudget, in_flight: int) -> RingBudget:
    """As many sessions as fit when each one must have room for the longest conversation."""
    for count in range(in_flight, 1, -1):
        budget = replace(least, in_flight=count, kv_tokens=count * least.context_tokens)
        if budget.kv_tokens <= UNLIMITED and is_fitting(cost, budget):
            return budget
    return least


def _serving_dtype(manifest: Manifest, ring: Sequence[FellowFacts], defaults: ServeDefaults) -> str:
    """One type for the whole ring: the operator's; else F32 when a fellow computes in it; else the stored one.

    A half type that a card of the ring does not compute in gives way to the half type that it does.
    """
    stored = stored_dtype(manifest)
    computed = {fellow.compute_dtype for fellow in ring}
    if defaults.dtype:
        dtype = defaults.dtype
    elif "F32" in computed or stored not in SERVED_DTYPES:
        dtype = "F32"
    elif stored in HALVES and "F16" in computed:
        dtype = "F16"
    else:
        dtype = stored
    if dtype not in SERVED_DTYPES or dtype not in DTYPE_BYTES:
        raise BadRequest(
            f"SWARM_SERVE_DTYPE={dtype!r} is not served; use {', '.join(SERVED_DTYPES)}", field="SWARM_SERVE_DTYPE"
        )
    if len(ring) > 1:
        for fellow in ring:
            spoken = fellow.capabilities.wire.dtypes if fellow.capabilities.wire else ()
            if spoken and dtype not in spoken:
                raise _lacking(
                    fellow.name, "wire.dtypes", f"it sends {', '.join(spoken)}, the ring computes in {dtype}"
                )
    return dtype


def _prefill_chunk_tokens(ring: Sequence[FellowFacts]) -> int:
    """Prompt tokens per piece: the first stage cuts prompts for the whole ring. 0 when it does not say."""
    serve = ring[0].capabilities.serve
    return serve.prefill_chunk_tokens if serve else 0


def _refuse_lack(fellow: FellowFacts, manifest: Manifest, stage_count: int, transport: Transport) -> None:
    lack = find_lack(fellow, manifest.model_type, stage_count, transport)
    if lack is not None:
        raise _lacking(fellow.name, lack.capability, lack.why)


def _lacking(name: str, capability: str, why: str) -> CapabilityMissing:
    return CapabilityMissing(f"fellow {name} lacks {capability}: {why}", fellow=name, capability=capability)


def _no_shared_wire(newer: FellowFacts, older: FellowFacts) -> CapabilityMissing:
    spoken = " and ".join(f"{fellow.name} reads {_versions(fellow)}" for fellow in (newer, older))
    return CapabilityMissing(
        f"fellows {newer.name} and {older.name} have no wire version in common: {spoken}; upgrade {older.name}",
        fellow=f"{newer.name}, {older.name}",
        capability="wire",
    )


def _versions(fellow: FellowFacts) -> str:
    wire = fellow.capabilities.wire
    return f"{wire.version_min}..{wire.version_max}" if wire else "none"


def _busy(fellows: Sequence[FellowFacts]) -> Conflict:
    busy = [fellow for fellow in fellows if fellow.busy_with]
    words = "; ".join(f"fellow {fellow.name} is loading {fellow.busy_with}" for fellow in busy)
    return Conflict(
        f"{words}, and one more model would evict it; try again when it is ready",
        fellow=", ".join(fellow.name for fellow in busy),
        loading=", ".join(sorted({fellow.busy_with for fellow in busy})),
    )


def _who_lack(names: Sequence[str]) -> str:
    return f"{', '.join(names)} {'lacks' if len(names) == 1 else 'lack'}"


def _too_few(needed: int, names: Sequence[str], what: str) -> TooFewFellows:
    listed = ", ".join(names) or "none"
    return TooFewFellows(
        f"{needed} stages need {needed} fellows, {len(names)} {'is' if len(names) == 1 else 'are'} {what}: {listed}",
        needed=needed,
        available=len(names),
        names=listed,
    )


def _not_enough_able(
    ranked: Sequence[FellowFacts], able: Sequence[FellowFacts], manifest: Manifest, request: PlanRequest
) -> CapabilityMissing | TooFewFellows:
    """Enough machines but too few that can: name those that cannot, and why. Else: too few machines."""
    serving = [fellow for fellow in ranked if fellow.capabilities.serve]
    if len(serving) < request.num_stages:
        return _too_few(request.num_stages, sorted(fellow.name for fellow in serving), "connected")
    gap = find_wire_gap(serving)
    if gap is not None:
        return _no_shared_wire(*gap)
    lacks = []
    for fellow in sorted((one for one in serving if one not in able), key=lambda one: one.name):
        lack = find_lack(fellow, manifest.model_type, request.num_stages, request.transport)
        if lack is not None:
            lacks.append((fellow.name, lack))
    words = "; ".join(f"fellow {name} lacks {lack.capability}: {lack.why}" for name, lack in lacks)
    return CapabilityMissing(
        f"{request.num_stages} stages need {request.num_stages} fellows that can, {len(able)} can. {words}",
        fellow=", ".join(name for name, _ in lacks),
        capability=lacks[0][1].capability,
        needed=request.num_stages,
        available=len(able),
    )


def _too_small(
    manifest: Manifest, ring: Sequence[FellowFacts], context_tokens: int, defaults: ServeDefaults
) -> NotEnoughMemory:
    """The refusal, with what one reply of the longest context would take and what each fellow has."""
    cost = cost_of(manifest, _serving_dtype(manifest, ring, defaults), _prefill_chunk_tokens(ring))
    free = tuple(fellow.free_bytes for fellow in ring)
    needed = needed_bytes(cost, RingBudget(free, context_tokens, context_tokens, 1))
    available = sum(amount or 0 for amount in free)
    each = ", ".join(f"{fellow.name} {_gigabytes(fellow.free_bytes)}" for fellow in ring)
    shape = "" if needed > available else " No cut of the layers fits each of them."
    return NotEnoughMemory(
        f"{manifest.model_id} over {len(ring)} stage{'s' if len(ring) > 1 else ''} needs {_gigabytes(needed)} with "
        f"{context_tokens:,} tokens of context; free: {each}.{shape} Ask for a shorter context, free memory, or add "
        "a fellow.",
        needed_bytes=needed,
        available_bytes=available,
        free=each,
    )


def _gigabytes(amount: int | None) -> str:
    return "unknown" if amount is None else f"{amount / 1e9:.2f} GB"
