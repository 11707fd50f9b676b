"""Which tensors of a model belong to which stage. Pure: names and numbers only."""

from dataclasses import dataclass

from swarm_core.errors import ServableCorrupt
from swarm_core.manifest import Manifest
from swarm_core.tensor_names import EMBEDDING, FINAL_NORM, HEAD, layer_of

_NAMED_MAX = 8  # of what is missing, in a message


@dataclass(frozen=True)
class LayerRange:
    """A stage's place in the model, half open."""

    layer_start: int
    layer_stop: int
    layer_count: int

    @property
    def is_first(self) -> bool:
        """Holds the embeddings."""
        return self.layer_start == 0

    @property
    def is_last(self) -> bool:
        """Holds the final norm and the head."""
        return self.layer_stop == self.layer_count


def slice_tensors(manifest: Manifest, layers: LayerRange) -> list[str]:
    """Names of the tensors a stage needs, in the manifest's order.

    The last stage of a model with tied embeddings needs the embeddings as its head. Of an adapter, a stage needs what
    belongs to its layers, which may be nothing.
    Raises ServableCorrupt when one that must exist is missing, whatever number of layers is claimed.
    """
    if manifest.adapter is not None:
        inside = range(layers.layer_start, layers.layer_stop)
        return [tensor for tensor in manifest.tensors if layer_of(tensor) in inside]
    asked = layers.layer_stop - layers.layer_start
    if asked > len(manifest.tensors):
        raise ServableCorrupt(f"model {manifest.model_id} has {len(manifest.tensors)} tensors for {asked} layers")
    ends = _ends(manifest, layers)
    wanted: list[str] = []
    seen_layers: set[int] = set()
    for tensor in manifest.tensors:
        layer = layer_of(tensor)
        if layer is not None:
            if layers.layer_start <= layer < layers.layer_stop:
                wanted.append(tensor)
                seen_layers.add(layer)
        elif tensor in ends:
            wanted.append(tensor)
    missing = set(range(layers.layer_start, layers.layer_stop)) - seen_layers
    missing_ends = ends - set(wanted)
    if missing or missing_ends:
        lacking = [f"layer {layer}" for layer in sorted(missing)] + sorted(missing_ends)
        more = f" and {len(lacking) - _NAMED_MAX} more" if len(lacking) > _NAMED_MAX else ""
        raise ServableCorrupt(f"model {manifest.model_id} lacks {', '.join(lacking[:_NAMED_MAX])}{more}")
    return wanted


def _ends(manifest: Manifest, layers: LayerRange) -> set[str]:
    """Tensors outside the layers that this stage needs."""
    ends: set[str] = set()
    if layers.is_first:
        ends.add(EMBEDDING)
    if layers.is_last:
        ends |= {FINAL_NORM, EMBEDDING if manifest.tied_embeddings else HEAD}
    return ends
