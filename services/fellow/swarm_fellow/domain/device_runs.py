"""Which layers of a stage go on which device, as the leader planned them. Pure: checks and names, places nothing."""

from collections.abc import Sequence
from dataclasses import dataclass

from swarm_core.errors import BadRequest


@dataclass(frozen=True)
class DeviceRun:
    """Consecutive layers of the model, half open, on one device ("cpu", "cuda:1")."""

    device: str
    layer_start: int
    layer_stop: int


def place_layers(
    asked: Sequence[tuple[int, int, int]], device_names: Sequence[str], layer_start: int, layer_stop: int
) -> list[DeviceRun]:
    """The runs by the names of this machine's devices; empty when none is asked for.

    asked: (position in device_names, first layer, first layer no longer), in order. layer_start, layer_stop: of the
    stage.
    Raises BadRequest for a device that is not here, and for runs that do not hold each layer of the stage once.
    """
    runs: list[DeviceRun] = []
    reached = layer_start
    for index, start, stop in asked:
        if not 0 <= index < len(device_names):
            raise BadRequest(
                f"layers {start} to {stop} are planned for device {index}; there are {len(device_names)} "
                f"({', '.join(device_names)})",
                field="device_runs",
            )
        if start != reached or stop <= start:
            break
        runs.append(DeviceRun(device_names[index], start, stop))
        reached = stop
    if asked and (reached != layer_stop or len(runs) != len(asked)):
        planned = ", ".join(f"{start} to {stop}" for _, start, stop in asked[:8])
        raise BadRequest(
            f"the devices' layers ({planned}) are not layers {layer_start} to {layer_stop}, each once and in order",
            field="device_runs",
        )
    return runs
