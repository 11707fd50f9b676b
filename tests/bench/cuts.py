"""Where SmolLM2 is cut for a ring: as the leader would, and so that every stage has as much to read per token."""

from collections.abc import Iterator
from itertools import combinations, pairwise
from pathlib import Path

from swarm_core.manifest import manifest_from_json
from swarm_core.slices import LayerRange
from swarm_leader.domain.budget import ModelCost, cost_of
from swarm_leader.domain.split import RingBudget, cut_layers

FREE_BYTES = 8 * 2**30  # of each of two equal machines
CONTEXT_TOKENS = 4096
IN_FLIGHT = 8


def leader_cut(servable: Path, stages: int) -> tuple[LayerRange, ...]:
    """For equal machines, with the leader's own arithmetic and its defaults."""
    budget = RingBudget((FREE_BYTES,) * stages, CONTEXT_TOKENS, IN_FLIGHT * CONTEXT_TOKENS, IN_FLIGHT)
    cut = cut_layers(_cost(servable), budget)
    assert cut is not None
    return tuple(cut)


def even_cut(servable: Path, stages: int) -> tuple[LayerRange, ...]:
    """So that the stage that reads most per token reads as little as it can. The head is read, embeddings are not."""
    cost = _cost(servable)
    return min(_cuts(cost.layer_count, stages), key=lambda cut: max(read_bytes(cost, layers) for layers in cut))


def read_bytes(cost: ModelCost, layers: LayerRange) -> int:
    """Weights a stage reads per token."""
    held = cost.layer_prefix_bytes[layers.layer_stop] - cost.layer_prefix_bytes[layers.layer_start]
    return held + (cost.head_bytes if layers.is_last else 0)


def told(servable: Path, cut: tuple[LayerRange, ...]) -> str:
    """A cut in words: layers, and the share of all weights read per token."""
    cost = _cost(servable)
    read = [read_bytes(cost, layers) for layers in cut]
    return " and ".join(
        f"{layers.layer_stop - layers.layer_start} layers ({share / sum(read):.0%} of what a token reads)"
        for layers, share in zip(cut, read, strict=True)
    )


def _cuts(layer_count: int, stages: int) -> Iterator[tuple[LayerRange, ...]]:
    for inner in combinations(range(1, layer_count), stages - 1):
        stops = (0, *inner, layer_count)
        yield tuple(LayerRange(start, stop, layer_count) for start, stop in pairwise(stops))


def _cost(servable: Path) -> ModelCost:
    return cost_of(manifest_from_json((servable / "servable.json").read_bytes()), "F32")
