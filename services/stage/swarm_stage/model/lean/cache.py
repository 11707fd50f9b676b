"""One session's keys and values in buffers that grow in place. Decides nothing about admission."""

from collections.abc import Sequence

import torch

# Where no reservation is known. Specification, "A cheaper decode step": a decode step must not copy the whole past.
GROWTH_TOKENS = 64

# k and v of the new positions, [K, T, E], then all that is held with them, [1, K, L, E]
LayerRows = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


class LeanCache:
    """Keys and values of every layer of a slice, k and v: [layers, kv heads, capacity, head dim].

    Positions below `length` are held; what lies beyond is room, or was cropped.
    """

    adapter = 0  # its session's, by its place in the stage's order, from 1; 0 is the base

    def __init__(
        self,
        layer_count: int,
        kv_heads: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device,
        reserved_tokens: int = 0,
    ) -> None:
        """reserved_tokens: room from the start, so that nothing held is ever moved. On a CPU it costs memory only as it
        is filled.
        """
        self.length = 0
        self._shape = (layer_count, kv_heads, head_dim)
        self._dtype, self._device = dtype, device
        self.k = self._room(reserved_tokens)
        self.v = self._room(reserved_tokens)

    def crop(self, length: int) -> None:
        """Forget every position from `length` on. Nothing to do when fewer are held."""
        assert length >= 0, length
        self.length = min(self.length, length)

    def reserve(self, length: int) -> None:
        """Have room for `length` positions; what is held stays where it is or is copied once."""
        capacity = self.k.shape[2]
        if length <= capacity:
            return
        # Doubling bounds the copies of a short reply, the step what a long one holds beyond its reservation.
        wanted = max(length, min(2 * capacity, capacity + 4 * GROWTH_TOKENS))
        wanted += -wanted % GROWTH_TOKENS
        for name in ("k", "v"):
            old, new = getattr(self, name), self._room(wanted)
            new[:, :, : self.length] = old[:, :, : self.length]
            setattr(self, name, new)

    def rows(self, pos: int, stop: int) -> list[LayerRows]:
        """For each layer: where keys and values of positions pos to stop go, and all from 0 to stop. Views, made at
        once: indexing in every layer would take a tenth of a small model's step.
        """
        fresh = (self.k[:, :, pos:stop].unbind(), self.v[:, :, pos:stop].unbind())
        held = (self.k[:, None, :, :stop].unbind(), self.v[:, None, :, :stop].unbind())
        return list(zip(*fresh, *held, strict=True))

    def _room(self, capacity: int) -> torch.Tensor:
        layer_count, kv_heads, head_dim = self._shape
        return torch.empty(layer_count, kv_heads, capacity, head_dim, dtype=self._dtype, device=self._device)


class SpreadCache(LeanCache):
    """Keys and values of a slice spread over several devices: a cache on each, in the order of its layers."""

    def __init__(self, parts: Sequence[LeanCache]) -> None:
        self.length = 0
        self._parts = parts

    def reserve(self, length: int) -> None:
        """Have room for `length` positions on every device."""
        for part in self._parts:
            part.length = self.length
            part.reserve(length)

    def rows(self, pos: int, stop: int) -> list[LayerRows]:
        """Of every layer in order, each on its own device."""
        return [rows for part in self._parts for rows in part.rows(pos, stop)]
