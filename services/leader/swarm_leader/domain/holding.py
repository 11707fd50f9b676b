"""How the stages of a placement hold their weights: on which devices, with which adapters and codes. Plain facts."""

from dataclasses import dataclass, replace
from enum import StrEnum


class AdapterUse(StrEnum):
    """When an adapter takes effect; the same words as core.v1.AdapterUse."""

    CHOSEN = "chosen"  # in sessions that name it
    ALWAYS = "always"  # in every session, beside quantised weights
    MERGED = "merged"  # in every session, added to the weights while they load


@dataclass(frozen=True)
class AdapterRef:
    """One LoRA adapter held beside the weights. manifest_sha256: hex."""

    model_id: str
    manifest_sha256: str
    use: AdapterUse


@dataclass(frozen=True)
class InnerCodec:
    """A boundary of training inside a stage. layer: the first behind it. codec: "int8" or "int4"."""

    layer: int
    codec: str


@dataclass(frozen=True)
class DeviceRun:
    """Consecutive layers, half open, on one device of a fellow, with what they take there.

    weight_bytes: planned, and once loaded measured. free_bytes: when it was planned; None is unknown.
    """

    device_index: int
    layer_start: int
    layer_stop: int
    weight_bytes: int
    kv_bytes: int
    working_bytes: int
    free_bytes: int | None = None

    @property
    def needed_bytes(self) -> int:
        """Everything it takes on its device."""
        return self.weight_bytes + self.kv_bytes + self.working_bytes


def measured_runs(runs: tuple[DeviceRun, ...], weight_bytes: tuple[int, ...]) -> tuple[DeviceRun, ...]:
    """The runs with the weights that were measured; as planned when they were not measured one by one."""
    if len(weight_bytes) != len(runs):
        return runs
    return tuple(replace(run, weight_bytes=measured) for run, measured in zip(runs, weight_bytes, strict=True))
