"""Where the layers are cut, given what each stage may hold. Pure arithmetic: no fellows, no capabilities."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from swarm_core.slices import LayerRange

from swarm_leader.domain.device_facts import Room, sum_known
from swarm_leader.domain.planning.budget import ModelCost
from swarm_leader.domain.planning.device_spread import Needs, fits


@dataclass(frozen=True)
class RingBudget:
    """The memory of a ring's stages and what its sessions need.

    rooms: one per stage in ring order, free bytes of each device its layers can be spread over; None is unknown and
    limits nothing. layer_starts: the first layer of every stage, when it is given; empty leaves the cuts free.
    on_processor: whether each stage computes on one; empty is none. speeds: bytes a second that each stage reads; empty
    cuts by size, as what is known of a machine's speed.
    """

    rooms: tuple[Room, ...]
    context_tokens: int
    kv_tokens: int
    in_flight: int
    layer_starts: tuple[int, ...] = ()
    on_processor: tuple[bool, ...] = ()
    speeds: tuple[float, ...] = ()

    @property
    def stage_count(self) -> int:
        """Stages of the ring."""
        return len(self.rooms)


def stage_bytes(cost: ModelCost, layers: LayerRange, budget: RingBudget) -> int:
    """Everything one stage takes on one device, in one number."""
    working = cost.working_bytes(layers.is_last, budget.context_tokens, budget.in_flight)
    return cost.weight_bytes(layers) + cost.kv_bytes(layers, budget.kv_tokens) + working


def run_needs(cost: ModelCost, budget: RingBudget) -> Needs:
    """What any run of layers takes on one device."""
    return lambda start, stop: stage_bytes(cost, LayerRange(start, stop, cost.layer_count), budget)


def needed_bytes(cost: ModelCost, budget: RingBudget) -> int:
    """What the whole ring takes, wherever it is cut."""
    stage_count = budget.stage_count
    whole = LayerRange(0, cost.layer_count, cost.layer_count)
    held = stage_bytes(cost, whole, budget)
    if stage_count > 1 and cost.tied_embeddings:
        held += cost.head_bytes  # the last stage's own copy of the embeddings
    return held + (stage_count - 1) * cost.working_bytes(False, budget.context_tokens, budget.in_flight)


def is_fitting(cost: ModelCost, budget: RingBudget) -> bool:
    """Whether any cut fits. Filling each stage as far as it goes, front to back, finds one if there is one."""
    start = 0
    for stage in range(budget.stage_count):
        stops = _stops(cost, budget, stage)
        stop = stops[0] if len(stops) == 1 else _furthest(cost, budget, stage, start, stops[-1])
        if stop <= start or not _fits(cost, budget, stage, start, stop):
            return False
        start = stop
    return True


def cut_layers(cost: ModelCost, budget: RingBudget, is_bound: bool = True) -> list[LayerRange] | None:
    """Cut the model into one run of layers per stage that fits, and that keeps all stages equally busy.

    A token costs a stage what it reads, so the sum of read^2 / speed over the stages is made least: every stage takes
    equally long. Where speeds are not known free memory stands for them: stages of equal room read equally much, and a
    roomier one reads more in proportion.
    Every stage gets at least one layer. None when no cut fits; is_bound False cuts as if all did, for the words of a
    refusal. Deterministic: at a tie the earlier cut is the smaller one.
    Source: docs/decisions/0007-stages-read-equally.md, 0018-placed-by-measured-speeds.md
    """
    layer_count = cost.layer_count
    frees = [sum_known(room) for room in budget.rooms]
    known = [free for free in frees if free is not None]
    usual = sum(known) / len(known) if known else 1.0  # an unknown fellow is taken for an average one
    best: list[dict[int, tuple[float, int]]] = [{0: (0.0, 0)}]
    for stage, free in enumerate(frees):
        share = budget.speeds[stage] if budget.speeds else max(1.0, float(usual if free is None else free))
        on_processor = bool(budget.on_processor) and budget.on_processor[stage]
        reached: dict[int, tuple[float, int]] = {}
        stops = _stops(cost, budget, stage)
        for start, (cost_so_far, _) in best[-1].items():
            for stop in stops:
                if stop <= start or (is_bound and not _fits(cost, budget, stage, start, stop)):
                    continue
                read = cost.read_bytes(LayerRange(start, stop, layer_count), on_processor)
                total = cost_so_far + read * read / share
                if total < reached.get(stop, (math.inf, 0))[0]:
                    reached[stop] = (total, start)
        best.append(reached)
    if layer_count not in best[-1]:
        return None
    return _walk_back(best, layer_count)


def largest_kv_tokens(cost: ModelCost, budget: RingBudget, wanted_tokens: int) -> int:
    """The most KV positions up to `wanted_tokens` that fit, at least the budget's own. The budget itself must fit."""
    low, high = budget.kv_tokens, max(wanted_tokens, budget.kv_tokens)
    while low < high:
        middle = (low + high + 1) // 2
        if is_fitting(cost, replace(budget, kv_tokens=middle)):
            low = middle
        else:
            high = middle - 1
    return low


def _furthest(cost: ModelCost, budget: RingBudget, stage: int, start: int, stop_max: int) -> int:
    """The last layer_stop this stage can take from `start`; `start` when not one layer fits."""
    stop = start
    while stop < stop_max and _fits(cost, budget, stage, start, stop + 1):
        stop += 1
    return stop


def _stops(cost: ModelCost, budget: RingBudget, stage: int) -> Sequence[int]:
    """Where a stage can stop: the layers left are enough for the stages behind it."""
    later = budget.stage_count - stage - 1
    if not later:
        return (cost.layer_count,)
    if budget.layer_starts:
        return (budget.layer_starts[stage + 1],)
    return range(stage + 1, cost.layer_count - later + 1)


def _fits(cost: ModelCost, budget: RingBudget, stage: int, start: int, stop: int) -> bool:
    return fits(run_needs(cost, budget), start, stop, budget.rooms[stage])


def _walk_back(best: list[dict[int, tuple[float, int]]], layer_count: int) -> list[LayerRange]:
    cuts: list[LayerRange] = []
    stop = layer_count
    for reached in reversed(best[1:]):
        start = reached[stop][1]
        cuts.append(LayerRange(start, stop, layer_count))
        stop = start
    return cuts[::-1]
