"""Why a model does not fit a ring, fellow by fellow and device by device. Words only; decides nothing."""

from collections.abc import Sequence

from swarm_core.errors import NotEnoughMemory
from swarm_core.slices import LayerRange

from swarm_leader.domain.capabilities import FellowFacts
from swarm_leader.domain.planning.budget import ModelCost, cost_of
from swarm_leader.domain.planning.placing import least_budget
from swarm_leader.domain.planning.refusals import gigabytes
from swarm_leader.domain.planning.split import RingBudget, cut_layers, needed_bytes
from swarm_leader.domain.planning.wanted import Wanted, prefill_chunk_tokens
from swarm_leader.domain.planning.weight_form import form_of


def too_small(wanted: Wanted, ring: Sequence[FellowFacts]) -> NotEnoughMemory:
    """The refusal, with what one reply of the longest context would take and what each fellow and device has."""
    form = form_of(wanted, ring)
    cost = cost_of(wanted.manifest, form, wanted.adapter_costs(form.storage_dtype), prefill_chunk_tokens(ring))
    budget = least_budget(wanted, ring)
    needed = needed_bytes(cost, budget)
    available = sum(free or 0 for room in budget.rooms for free in room)
    each = ", ".join(f"{fellow.name} {gigabytes(fellow.room_bytes)}{_by_device(fellow)}" for fellow in ring)
    shape = "" if needed > available else " No cut of the layers fits each of them."
    stages = f"{len(ring)} stage{'s' if len(ring) > 1 else ''}"
    return NotEnoughMemory(
        f"{wanted.manifest.model_id} over {stages} needs {gigabytes(needed)} with {wanted.context_tokens:,} tokens of "
        f"context; free: {each}.{shape} {_say_cut(cost, budget, ring)}. Ask for a shorter context, free memory, or add "
        "a fellow.",
        needed_bytes=needed,
        available_bytes=available,
        free=each,
        quantization=form.quantization,
        dtype=form.dtype,
    )


def _by_device(fellow: FellowFacts) -> str:
    """The devices of a fellow whose stage would be spread over several."""
    if len(fellow.devices) < 2:
        return ""
    devices = (f"{one.kind} {one.device_index} {gigabytes(one.free_bytes)}" for one in fellow.devices)
    return f" ({', '.join(devices)})"


def _say_cut(cost: ModelCost, budget: RingBudget, ring: Sequence[FellowFacts]) -> str:
    """What each fellow would have to hold if the layers were cut by free memory."""
    cuts = cut_layers(cost, budget, is_bound=False) or []
    return "Needed: " + "; ".join(
        f"{fellow.name} {_say_stage(cost, budget, layers)}" for fellow, layers in zip(ring, cuts, strict=True)
    )


def _say_stage(cost: ModelCost, budget: RingBudget, layers: LayerRange) -> str:
    weights = cost.weight_bytes(layers)
    kv = cost.kv_bytes(layers, budget.kv_tokens)
    working = cost.working_bytes(layers.is_last, budget.context_tokens, budget.in_flight)
    return (
        f"{gigabytes(weights + kv + working)} for layers {layers.layer_start} to {layers.layer_stop - 1} (weights "
        f"{gigabytes(weights)}, KV {gigabytes(kv)}, working buffers {gigabytes(working)})"
    )
