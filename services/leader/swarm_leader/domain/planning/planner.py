"""Who holds which layers of a model. Pure: facts in, a plan or a refusal with numbers out. No clock, no I/O."""

from collections.abc import Sequence
from dataclasses import replace

from swarm_core.errors import CapabilityMissing, Conflict, NotEnoughMemory, SwarmError, TooFewFellows
from swarm_core.manifest import Manifest
from swarm_core.quantization import NONE

from swarm_leader.domain.capabilities import FellowFacts, find_wire_gap
from swarm_leader.domain.planning.choosing import choose_unless_busy
from swarm_leader.domain.planning.fallbacks import fall_back, join_refusals
from swarm_leader.domain.planning.placing import place
from swarm_leader.domain.planning.plan import Plan, PlanRequest, ServeDefaults
from swarm_leader.domain.planning.refusals import busy, no_shared_wire, refuse_lack
from swarm_leader.domain.planning.request_checks import check_request
from swarm_leader.domain.planning.too_small import too_small
from swarm_leader.domain.planning.wanted import AdapterWish, Wanted
from swarm_leader.domain.planning.weight_form import may_store_in_half

USUAL = ServeDefaults()


def plan(
    manifest: Manifest,
    fellows: Sequence[FellowFacts],
    request: PlanRequest,
    defaults: ServeDefaults = USUAL,
    adapters: Sequence[AdapterWish] = (),
) -> Plan:
    """Place a model on connected fellows.

    Every layer is on exactly one stage and one device, every stage has at least one layer and a fellow of its own, and
    weights, KV and working buffers of a stage fit its fellow's devices. A fellow all of whose places are taken by loads
    gets no other model meanwhile. The same facts give the same plan, whatever their order. Where too few fellows can
    quantise as asked, the plan says in a note what it falls back to; and which models it ends to make room.
    manifest: of the weights. adapters: resolved; request.adapters are not looked at.
    Raises NoFellow, TooFewFellows, NotEnoughMemory, CapabilityMissing, FellowNotFound, BadRequest, ServableCorrupt,
    Conflict (names the model that loads); nothing else.
    """
    check_request(manifest, fellows, request)
    longest = manifest.context_tokens_max
    context_tokens = request.context_tokens or defaults.context_tokens
    asked = request.quantization or manifest.quantization or NONE
    wanted = Wanted(
        manifest=manifest,
        request=request,
        defaults=defaults,
        context_tokens=min(context_tokens, longest) if longest else context_tokens,
        adapters=tuple(adapters),
        quantization=asked,
    )
    planned = _plan_quantized(wanted, fellows)
    notes = [*planned.notes, *_room_notes(planned, fellows)]
    if 0 < longest < request.context_tokens:
        cut = f"context cut from {request.context_tokens:,} to {longest:,} tokens, the most this model takes"
        notes.insert(0, cut)
    return replace(planned, quantization_asked=asked, notes=tuple(notes))


def _room_notes(planned: Plan, fellows: Sequence[FellowFacts]) -> list[str]:
    """What is evicted where this model goes: people would else miss it only when they ask it."""
    used = {stage.fellow_id for stage in planned.stages}
    return [
        f"{fellow.name} makes room: {', '.join(fellow.makes_room_of)} ends (SWARM_MAX_LOADED_MODELS)"
        for fellow in sorted(fellows, key=lambda fellow: fellow.name)
        if fellow.fellow_id in used and fellow.makes_room_of
    ]


def _plan_quantized(wanted: Wanted, fellows: Sequence[FellowFacts]) -> Plan:
    """As asked, or what it falls back to for lack of fellows that can, with a note."""
    named = wanted.request.fellow_ids
    possible = [fellow for fellow in fellows if not named or fellow.fellow_id in named]
    notes: list[str] = []
    refused: list[tuple[str, SwarmError]] = []
    while True:
        try:
            planned = _plan_stored(wanted, fellows)
        except (CapabilityMissing, NotEnoughMemory, TooFewFellows) as refusal:
            refused.append((wanted.quantization, refusal))
            following = fall_back(wanted.quantization, possible)
            if following is None:
                raise join_refusals(refused) from None
            notes.append(following.note)
            wanted = replace(wanted, quantization=following.quantization)
        else:
            return replace(planned, notes=(*notes, *planned.notes))


def _plan_stored(wanted: Wanted, fellows: Sequence[FellowFacts]) -> Plan:
    """In the type that is computed in; where that does not fit, in the half type the weights are stored in."""
    try:
        return _plan(wanted, fellows)
    except NotEnoughMemory:
        if not may_store_in_half(wanted, fellows):
            raise
        try:
            return _plan(replace(wanted, halves_storage=True), fellows)
        except Conflict:
            raise  # waiting would help
        except SwarmError:
            pass
        raise


def _plan(wanted: Wanted, fellows: Sequence[FellowFacts]) -> Plan:
    """In one form: over the fellows that are named, in their order, or those that are chosen."""
    if not wanted.request.fellow_ids:
        return choose_unless_busy(wanted, fellows)
    by_id = {fellow.fellow_id: fellow for fellow in fellows}
    ring = [by_id[fellow_id] for fellow_id in wanted.request.fellow_ids]
    if (gap := find_wire_gap(ring)) is not None:
        raise no_shared_wire(*gap)
    for fellow in ring:
        refuse_lack(fellow, wanted.needs(len(ring)))
    if any(fellow.busy_with for fellow in ring):
        raise busy(ring)
    placed = place(wanted, ring)
    if placed is None:
        raise too_small(wanted, ring)
    return placed
