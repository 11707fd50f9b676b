"""One session's keys and values on one stage. Grows and crops; decides nothing about admission."""

from typing import Any, Protocol

import torch
from transformers import DynamicCache


class SessionCache(Protocol):
    """What a stage needs of a session's cache, whichever slice made it."""

    @property
    def length(self) -> int:
        """Positions held."""
        ...

    @property
    def adapter(self) -> int:
        """The adapter its session runs with, by its place in the stage's order, from 1; 0 is the base."""
        ...

    def crop(self, length: int) -> None:
        """Forget every position from `length` on. Nothing to do when fewer are held."""
        ...


class KvCache:
    """What a session has seen so far, for the layers of one slice.

    Every layer keeps every position, also layers with a sliding window: there the mask leaves out what is too old.
    So cropping is exact at any length, at the price of memory beyond the window.
    """

    def __init__(self, adapter: int = 0) -> None:
        self.layers = DynamicCache()
        self.adapter = adapter

    @property
    def length(self) -> int:
        """Positions held."""
        return self.layers.get_seq_length()

    @torch.inference_mode()
    def crop(self, length: int) -> None:
        """Forget every position from `length` on. Nothing to do when fewer are held.

        Works layer by layer, so it also mends a cache that a failed forward left at different lengths.
        """
        assert length >= 0, length
        layer: Any  # a DynamicLayer; the cache may hold other kinds
        for layer in self.layers.layers:
            surplus = layer.get_seq_length() - length
            if surplus > 0:
                layer.crop(-surplus)
