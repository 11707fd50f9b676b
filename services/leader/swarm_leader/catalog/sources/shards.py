"""Where training cut a model: from what it recorded, or from which layers its shards hold. Pure: numbers only.

Shards count layers either through the whole model or each from 0; which one is seen in all of them together.
"""

from collections.abc import Sequence, Set
from dataclasses import dataclass
from itertools import pairwise

from swarm_core.errors import ServableCorrupt
from swarm_core.manifest import MANIFEST_NAME


@dataclass(frozen=True)
class Placed:
    """layer_starts: first layer of every shard. offsets: what to add to each shard's own layer numbers."""

    layer_starts: tuple[int, ...]
    offsets: tuple[int, ...]


def place_recorded(
    shards: Sequence[Set[int]], boundaries: Sequence[int], layer_count: int, needs_all: bool = True
) -> Placed:
    """The shards at the boundaries training recorded. needs_all: every layer must be there (an adapter's need not).

    Raises ServableCorrupt when shards and boundaries contradict each other, or a layer is missing.
    """
    if len(boundaries) != len(shards) - 1 or (boundaries and boundaries[-1] >= layer_count):
        raise ServableCorrupt(
            f"{MANIFEST_NAME} records boundaries {_few(boundaries)} for {len(shards)} shards of {layer_count} layers"
        )
    starts = (0, *boundaries)
    ranges = [range(start, stop) for start, stop in pairwise((*starts, layer_count))]
    if all(layers <= set(inside) for layers, inside in zip(shards, ranges, strict=True)):
        offsets = (0,) * len(starts)
    elif all(layers <= set(range(len(inside))) for layers, inside in zip(shards, ranges, strict=True)):
        offsets = starts
    else:
        raise _contradiction(shards, ranges)
    for stage, (layers, inside, offset) in enumerate(zip(shards, ranges, offsets, strict=True)):
        missing = set(inside) - {layer + offset for layer in layers}
        if needs_all and missing:
            raise ServableCorrupt(
                f"stage-{stage} lacks layer {min(missing)} of its {inside.start} to {inside.stop - 1}"
            )
    return Placed(starts, offsets)


def place_unrecorded(shards: Sequence[Set[int]], layer_count: int) -> Placed:
    """The shards as the layers they hold say. Raises ServableCorrupt for layers missing, or in two shards."""
    for stage, layers in enumerate(shards):
        if not layers:
            raise ServableCorrupt(f"stage-{stage} holds no layer, and {MANIFEST_NAME} records no boundaries")
        gap = set(range(min(layers), max(layers) + 1)) - layers
        if gap:
            raise ServableCorrupt(f"stage-{stage} holds layers {min(layers)} to {max(layers)} without {min(gap)}")
    counts = [len(layers) for layers in shards]
    starts = tuple(sum(counts[:stage]) for stage in range(len(shards)))
    if len(shards) > 1 and sum(counts) == layer_count and not any(min(layers) for layers in shards):
        return Placed(starts, starts)
    next_layer = 0
    for stage, layers in enumerate(shards):
        if min(layers) < next_layer:
            raise ServableCorrupt(f"stage-{stage} holds layer {min(layers)}, which an earlier shard holds too")
        if min(layers) > next_layer:
            raise ServableCorrupt(f"layer {next_layer} is missing: stage-{stage} begins with layer {min(layers)}")
        next_layer = max(layers) + 1
    if next_layer != layer_count:
        raise ServableCorrupt(f"the shards hold {next_layer} layers, config.json says {layer_count}")
    return Placed(starts, (0,) * len(shards))


def _contradiction(shards: Sequence[Set[int]], ranges: Sequence[range]) -> ServableCorrupt:
    stage, layer = next(
        (stage, min(layers - set(inside)))
        for stage, (layers, inside) in enumerate(zip(shards, ranges, strict=True))
        if layers - set(inside)
    )
    inside = ranges[stage]
    records = f"{MANIFEST_NAME} records layers {inside.start} to {inside.stop - 1} for it"
    return ServableCorrupt(f"stage-{stage} holds layer {layer}, but {records}")


def _few(numbers: Sequence[int]) -> str:
    return f"{list(numbers[:8])}{' ...' if len(numbers) > 8 else ''}"
