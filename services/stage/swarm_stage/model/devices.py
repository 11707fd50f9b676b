"""Which device holds what of a slice that is spread over several. Pure: names of devices and layers; no torch."""

from collections.abc import Sequence
from dataclasses import dataclass

from swarm_core.errors import BadRequest
from swarm_core.slices import LayerRange, layer_of

from swarm_stage.model.holding import DeviceLayers

_BEHIND_LAYERS = ("model.norm.", "lm_head.")


@dataclass(frozen=True)
class Spread:
    """Where the parts of a slice are: runs of its layers, each on one device, in the order they are computed.

    Embeddings are with the first layer, final norm and head with the last. `layers` of a run count from the start of
    the slice.
    """

    runs: tuple[DeviceLayers, ...]

    @property
    def first(self) -> str:
        """Device of the embeddings, and of the first layer."""
        return self.runs[0].device

    @property
    def last(self) -> str:
        """Device of the last layer, the final norm and the head."""
        return self.runs[-1].device

    @property
    def devices(self) -> tuple[str, ...]:
        """Every device, once, in the order it is first computed on."""
        return tuple(dict.fromkeys(run.device for run in self.runs))

    def device_of_layer(self, layer: int) -> str:
        """Device of a layer, counted from the start of the slice."""
        return next(run.device for run in self.runs if run.layer_start <= layer < run.layer_stop)

    def run_of(self, parameter: str) -> int:
        """Which run holds a parameter, named as the slice's own modules are ("model.layers.0.mlp.up_proj.weight")."""
        layer = layer_of(parameter)
        if layer is not None:
            return next(index for index, run in enumerate(self.runs) if run.layer_start <= layer < run.layer_stop)
        return len(self.runs) - 1 if parameter.startswith(_BEHIND_LAYERS) else 0

    def device_of(self, parameter: str) -> str:
        """Device of a parameter, named likewise."""
        return self.runs[self.run_of(parameter)].device


def spread_over(layers: LayerRange, device: str, asked: Sequence[DeviceLayers]) -> Spread:
    """Where a slice's layers go. asked: runs in the model's own numbering; none puts all on `device`.

    Raises BadRequest for runs that leave a layer out, hold one twice, or are not in order.
    """
    count = layers.layer_stop - layers.layer_start
    if not asked:
        return Spread((DeviceLayers(device, 0, count),))
    begins = [layers.layer_start, *(run.layer_stop for run in asked)]
    follows = all(run.layer_start == begin < run.layer_stop for run, begin in zip(asked, begins, strict=False))
    if not follows or begins[-1] != layers.layer_stop or not all(run.device for run in asked):
        runs = ", ".join(f"{run.layer_start} to {run.layer_stop} on {run.device or 'no device'}" for run in asked)
        raise BadRequest(
            f"layers {layers.layer_start} to {layers.layer_stop} cannot be spread as {runs}: every layer goes on "
            "exactly one device, in order",
            field="device_layers",
        )
    start = layers.layer_start
    return Spread(tuple(DeviceLayers(run.device, run.layer_start - start, run.layer_stop - start) for run in asked))
