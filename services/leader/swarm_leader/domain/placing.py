"""A model over one ring of fellows: how many sessions, where it is cut, what each stage takes. Chooses no fellow."""

from collections.abc import Sequence
from dataclasses import replace

from swarm_core.errors import NotEnoughMemory
from swarm_core.manifest import Manifest

from swarm_leader.domain.batch import plan_batch_max
from swarm_leader.domain.budget import ModelCost, cost_of
from swarm_leader.domain.capabilities import UNLIMITED, FellowFacts
from swarm_leader.domain.plan import Plan, ServeDefaults
from swarm_leader.domain.records import StageRecord, Transport
from swarm_leader.domain.refusals import gigabytes, who_lack
from swarm_leader.domain.routes import plan_routes
from swarm_leader.domain.serving_dtype import serving_dtype
from swarm_leader.domain.split import RingBudget, cut_layers, is_fitting, largest_kv_tokens, needed_bytes


def place_any_order(
    manifest: Manifest, ring: Sequence[FellowFacts], transport: Transport, context_tokens: int, defaults: ServeDefaults
) -> Plan | None:
    """Roomiest first; if that does not fit, the two roomiest at the ends, which hold embeddings and head as well."""
    placed = place(manifest, ring, transport, context_tokens, defaults)
    if placed is None and len(ring) > 2:
        placed = place(manifest, [ring[0], *ring[2:], ring[1]], transport, context_tokens, defaults)
    return placed


def place(
    manifest: Manifest, ring: Sequence[FellowFacts], transport: Transport, context_tokens: int, defaults: ServeDefaults
) -> Plan | None:
    """Cut the model over this very ring. None when it does not fit even with one session of the longest context."""
    dtype = serving_dtype(manifest, ring, defaults)
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
        notes.append(f"{who_lack(one_by_one)} serve_concurrent: the ring runs one reply at a time")
    in_flight = min(in_flight, *(max(1, fellow.capabilities.in_flight_max or 1) for fellow in ring))
    if len(by_tokens) < len(ring):
        lacking = [fellow.name for fellow in ring if not fellow.capabilities.serve_kv_budget]
        notes.append(f"{who_lack(lacking)} serve_kv_budget: every reply in flight is planned with a whole context")
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


def _prefill_chunk_tokens(ring: Sequence[FellowFacts]) -> int:
    """Prompt tokens per piece: the first stage cuts prompts for the whole ring. 0 when it does not say."""
    serve = ring[0].capabilities.serve
    return serve.prefill_chunk_tokens if serve else 0


def too_small(
    manifest: Manifest, ring: Sequence[FellowFacts], context_tokens: int, defaults: ServeDefaults
) -> NotEnoughMemory:
    """The refusal, with what one reply of the longest context would take and what each fellow has."""
    cost = cost_of(manifest, serving_dtype(manifest, ring, defaults), _prefill_chunk_tokens(ring))
    free = tuple(fellow.free_bytes for fellow in ring)
    needed = needed_bytes(cost, RingBudget(free, context_tokens, context_tokens, 1))
    available = sum(amount or 0 for amount in free)
    each = ", ".join(f"{fellow.name} {gigabytes(fellow.free_bytes)}" for fellow in ring)
    shape = "" if needed > available else " No cut of the layers fits each of them."
    return NotEnoughMemory(
        f"{manifest.model_id} over {len(ring)} stage{'s' if len(ring) > 1 else ''} needs {gigabytes(needed)} with "
        f"{context_tokens:,} tokens of context; free: {each}.{shape} Ask for a shorter context, free memory, or add "
        "a fellow.",
        needed_bytes=needed,
        available_bytes=available,
        free=each,
    )
