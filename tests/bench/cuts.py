"""Where SmolLM2 is cut for a ring: as the leader would, and what each stage then reads per token."""

from pathlib import Path

from swarm_core.manifest import manifest_from_json
from swarm_core.slices import LayerRange
from swarm_leader.domain.planning.budget import ModelCost, WeightForm, cost_of
from swarm_leader.domain.planning.split import RingBudget, cut_layers

FREE_BYTES = 8 * 2**30  # of each of two equal machines
CONTEXT_TOKENS = 4096
IN_FLIGHT = 8


def leader_cut(servable: Path, stages: int) -> tuple[LayerRange, ...]:
    """For equal machines, with the leader's own arithmetic and its defaults."""
    budget = RingBudget(((FREE_BYTES,),) * stages, CONTEXT_TOKENS, IN_FLIGHT * CONTEXT_TOKENS, IN_FLIGHT)
    cut = cut_layers(_cost(servable), budget)
    assert cut is not None
    return tuple(cut)


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


def _cost(servable: Path) -> ModelCost:
    return cost_of(manifest_from_json((servable / "servable.json").read_bytes()), WeightForm("F32"))
