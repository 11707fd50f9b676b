"""Where the layers are cut, given what each stage may hold. Pure arithmetic: no fellows, no capabilities."""

import math
from dataclasses import dataclass, replace

from swarm_core.slices import LayerRange

from swarm_leader.domain.budget import ModelCost


@dataclass(frozen=True)
class RingBudget:
    """The memory of a ring's stages and what its sessions need.

    free_bytes: one per stage in ring order; None is unknown and limits nothing.
    """

    free_bytes: tuple[int | None, ...]
    context_tokens: int
    kv_tokens: int
    in_flight: int


def stage_bytes(cost: ModelCost, layers: LayerRange, budget: RingBudget) -> int:
    """Everything one stage takes, in one number."""
    working = cost.working_bytes(layers.is_last, budget.context_tokens, budget.in_flight)
    return cost.weight_bytes(layers) + cost.kv_bytes(layers, budget.kv_tokens) + working


def needed_bytes(cost: ModelCost, budget: RingBudget) -> int:
    """What the whole ring takes, wherever it is cut."""
    stage_count = len(budget.free_bytes)
    whole = LayerRange(0, cost.layer_count, cost.layer_count)
    held = stage_bytes(cost, whole, budget)
    if stage_count > 1 and cost.tied_embeddings:
        held += cost.head_bytes  # the last stage's own copy of the embeddings
    return held + (stage_count - 1) * cost.working_bytes(False, budget.context_tokens, budget.in_flight)


def is_fitting(cost: ModelCost, budget: RingBudget) -> bool:
    """Whether any cut fits. Filling each stage as far as it goes, front to back, finds one if there is one."""
    stage_count, layer_count = len(budget.free_bytes), cost.layer_count
    start = 0
    for stage in range(stage_count):
        later = stage_count - stage - 1
        stop = layer_count if not later else _furthest(cost, budget, stage, start, layer_count - later)
        if stop <= start or not _fits(cost, budget, stage, start, stop):
            return False
        start = stop
    return True


def cut_layers(cost: ModelCost, budget: RingBudget) -> list[LayerRange] | None:
    """Cut the model into one run of layers per stage that fits, and that keeps all stages equally busy.

    A token costs a stage what it reads, so the sum of read^2 / free over the stages is made least: stages of equal room
    read equally much, and a roomier one reads more in proportion (what is known of a machine's speed is its size).
    Every stage gets at least one layer. None when no cut fits. Deterministic: at a tie the earlier cut is the smaller
    one. Source: docs/decisions/0007-stages-read-equally.md
    """
    stage_count, layer_count = len(budget.free_bytes), cost.layer_count
    known = [free for free in budget.free_bytes if free is not None]
    usual = sum(known) / len(known) if known else 1.0  # an unknown fellow is taken for an average one
    best: list[dict[int, tuple[float, int]]] = [{0: (0.0, 0)}]
    for stage, free in enumerate(budget.free_bytes):
        share = max(1.0, float(usual if free is None else free))
        reached: dict[int, tuple[float, int]] = {}
        later = stage_count - stage - 1
        stops = range(stage + 1, layer_count - later + 1) if later else (layer_count,)
        for start, (cost_so_far, _) in best[-1].items():
            for stop in stops:
                if stop <= start or not _fits(cost, budget, stage, start, stop):
                    continue
                read = cost.read_bytes(LayerRange(start, stop, layer_count))
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


def _fits(cost: ModelCost, budget: RingBudget, stage: int, start: int, stop: int) -> bool:
    free = budget.free_bytes[stage]
    return free is None or stage_bytes(cost, LayerRange(start, stop, cost.layer_count), budget) <= free


def _walk_back(best: list[dict[int, tuple[float, int]]], layer_count: int) -> list[LayerRange]:
    cuts: list[LayerRange] = []
    stop = layer_count
    for reached in reversed(best[1:]):
        start = reached[stop][1]
        cuts.append(LayerRange(start, stop, layer_count))
        stop = start
    return cuts[::-1]
