"""A device of a fellow as the planner sees it. Plain facts."""

from collections.abc import Sequence
from dataclasses import dataclass

CARD = "cuda"
# Free bytes of each device a stage may be on, in order; None is unknown and limits nothing.
Room = tuple[int | None, ...]


@dataclass(frozen=True)
class DeviceFacts:
    """One device that a stage can be on.

    free_bytes: with what would be evicted for a new model; None is unknown, never 0. compute_dtype: as spelled in
    safetensors, "" is unknown. read_bytes_per_s: how fast it reads its memory; float32_flops and float16_flops: its
    matrix products a second; None is unknown.
    """

    device_index: int
    kind: str
    free_bytes: int | None
    compute_dtype: str = ""
    read_bytes_per_s: float | None = None
    float32_flops: float | None = None
    float16_flops: float | None = None

    @property
    def is_processor(self) -> bool:
        """The processor with its memory, no card."""
        return self.kind != CARD

    def flops(self, dtype: str) -> float | None:
        """Operations a second of products in this type; None is unknown."""
        return self.float32_flops if dtype == "F32" else self.float16_flops

    @property
    def is_f32_card(self) -> bool:
        """A card that computes in F32 alone: half types would take half its memory, and it cannot compute in them."""
        return self.kind == CARD and self.compute_dtype == "F32"


def sum_known(amounts: Sequence[int | None]) -> int | None:
    """The sum; None when one is unknown."""
    return None if any(amount is None for amount in amounts) else sum(amount or 0 for amount in amounts)
