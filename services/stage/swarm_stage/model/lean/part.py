"""The layers of a lean slice that are on one device, with what they read beside weights. Runs nothing itself."""

from collections.abc import Sequence

import torch

from swarm_stage.model.lean.layer import LeanLayer


class LeanPart:
    """Consecutive layers on one device. P positions of the rotary tables, E head dim."""

    def __init__(self, device: torch.device, layers: Sequence[LeanLayer], dtype: torch.dtype) -> None:
        self.device = device
        self.layers = layers
        self._cos_PE = self._sin_PE = torch.empty(0, 0, dtype=dtype, device=device)

    def take_tables(self, cos_PE: torch.Tensor, sin_PE: torch.Tensor) -> None:
        """Rotate by these from now on. They are computed once for all devices: two might round differently."""
        self._cos_PE, self._sin_PE = cos_PE.to(self.device), sin_PE.to(self.device)

    def angles(self, positions_N: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """cos and signed sin of these positions, [N, 1, E], on this device."""
        positions_N = positions_N.to(self.device)
        return self._cos_PE[positions_N, None], self._sin_PE[positions_N, None]

    def causal_mask(self, positions: int, pos: int) -> torch.Tensor | None:
        """[T, pos + T]: row t may look at everything up to position pos + t. None where nothing need be masked, or all
        there is was computed together.
        """
        if positions == 1 or not pos:
            return None
        rows = torch.arange(pos, pos + positions, device=self.device)
        return torch.arange(pos + positions, device=self.device)[None] <= rows[:, None]
