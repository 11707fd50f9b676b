"""Weights held in half precision and computed in float32: each is cast for the product that reads it, then forgotten.

Old cards compute in float32 alone, and checkpoints are published in 16 bits: held as they come, weights take half the
memory and nothing is lost. Knows products and modules; reads no file.
Shapes: N rows, I inputs, O outputs.
"""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from swarm_core.errors import BadRequest
from torch import nn

from swarm_stage.model.products.blas import Multiplier
from swarm_stage.model.products.product import MultiplierOf

# Bytes of a weight cast at once. A head of 250,000 tokens would else be cast to 2.5 GB on cards that have 4; the KV
# budget keeps 300 MiB for what a forward passes on (engine/budget.py).
PIECE_BYTES = 128 * 2**20
STORED = {"F16": torch.float16, "BF16": torch.bfloat16}
StaysFull = Callable[[str], bool]  # whether a module, by its name, is held otherwise: quantised


class Upcast:
    """Casts weights into room that is used again for the next one. One thread uses it, one weight at a time."""

    def __init__(self, dtype: torch.dtype, piece_bytes: int = PIECE_BYTES) -> None:
        """dtype: what is computed in."""
        self.dtype = dtype
        self._piece_elements = piece_bytes // dtype.itemsize
        self._rooms: dict[torch.device, torch.Tensor] = {}

    def __call__(self, weight: torch.Tensor) -> torch.Tensor:
        """The same numbers in the same order of memory, until the next call on this device."""
        room = self._room(weight.device, weight.numel())
        if weight.stride(0) == 1:
            return room.view(weight.shape[1], weight.shape[0]).t().copy_(weight)
        return room.view(weight.shape).copy_(weight)

    def pieces(self, outputs: int, inputs: int) -> list[tuple[int, int]]:
        """Runs of outputs, half open, each small enough to be cast at once; mostly one."""
        step = max(1, self._piece_elements // inputs)
        return [(start, min(start + step, outputs)) for start in range(0, outputs, step)]

    def _room(self, device: torch.device, elements: int) -> torch.Tensor:
        room = self._rooms.get(device)
        if room is None or room.numel() < elements:
            self._rooms.pop(device, None)
            with torch.inference_mode(False):  # written to in and out of it
                room = self._rooms[device] = torch.empty(elements, dtype=self.dtype, device=device)
        return room[:elements]


class HalfMultiplier:
    """As Multiplier, for a matrix in half precision: what Multiplier gives for the same numbers in full, bit for bit.

    A matrix of several pieces is that many products, equal to one but for rounding.
    """

    def __init__(self, weight_IO: torch.Tensor, upcast: Upcast) -> None:
        self._weight_IO, self._upcast = weight_IO, upcast
        self._pieces = upcast.pieces(weight_IO.shape[1], weight_IO.shape[0])

    def __call__(self, x_NI: torch.Tensor) -> torch.Tensor:
        """[N, O]."""
        return self._joined(lambda times, start, stop: times(x_NI))

    def added_to(self, base_NO: torch.Tensor, x_NI: torch.Tensor) -> torch.Tensor:
        """base + x W, [N, O]. base may be one row for all, and stays as it is."""
        return self._joined(lambda times, start, stop: times.added_to(base_NO[..., start:stop], x_NI))

    def _joined(self, run: Callable[[Multiplier, int, int], torch.Tensor]) -> torch.Tensor:
        parts = [
            run(Multiplier(self._upcast(self._weight_IO[:, start:stop])), start, stop) for start, stop in self._pieces
        ]
        return torch.cat(parts, dim=-1) if len(parts) > 1 else parts[0]


class HalfLinear(nn.Linear):
    """A linear layer whose weight is in half precision; its bias is not."""

    def __init__(self, linear: nn.Linear, dtype: torch.dtype, upcast: Upcast) -> None:
        """linear: what it stands for, on the meta device; its bias is taken over. dtype: stored."""
        super().__init__(linear.in_features, linear.out_features, False, device="meta", dtype=dtype)
        self.bias = linear.bias
        self.upcast = upcast

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """As nn.Linear."""
        parts = [
            F.linear(x, self.upcast(self.weight[start:stop]), None if self.bias is None else self.bias[start:stop])
            for start, stop in self.upcast.pieces(self.out_features, self.in_features)
        ]
        return torch.cat(parts, dim=-1) if len(parts) > 1 else parts[0]


def multiplier_of(linear: nn.Module) -> MultiplierOf:
    """What multiplies by a layer's weight, as it is held."""
    return partial(HalfMultiplier, upcast=linear.upcast) if isinstance(linear, HalfLinear) else Multiplier


class HalfEmbedding(nn.Embedding):
    """Embeddings in half precision; only the rows that are read are cast."""

    def __init__(self, embedding: nn.Embedding, dtype: torch.dtype, upcast: Upcast) -> None:
        """embedding: what it stands for, its weight on the meta device. dtype: stored."""
        super().__init__(embedding.num_embeddings, embedding.embedding_dim, device="meta", dtype=dtype)
        self._computed = upcast.dtype
        self._scale: torch.Tensor | None = getattr(embedding, "embed_scale", None)  # of Gemma's

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """As nn.Embedding, and as what it stands for."""
        rows = super().forward(input).to(self._computed)
        return rows if self._scale is None else rows * self._scale.to(self._computed)


def hold_half(model: nn.Module, storage: str, computed: str, stays: StaysFull, piece_bytes: int = PIECE_BYTES) -> None:
    """Let linear layers and embeddings of a model on the meta device hold their weights in `storage`.

    storage, computed: as spelled in safetensors. Norms and biases are small: they stay in what is computed in.
    Raises BadRequest unless it is half precision under float32.
    """
    if storage not in STORED or computed != "F32":
        raise BadRequest(
            f"weights held in {storage[:40]!r} are not computed in {computed}; {' or '.join(STORED)} under F32 is",
            field="storage_dtype",
        )
    upcast = Upcast(torch.float32, piece_bytes)
    for name, module in list(model.named_modules()):
        if type(module) is nn.Linear and not stays(name):
            model.set_submodule(name, HalfLinear(module, STORED[storage], upcast))
        elif isinstance(module, nn.Embedding) and not stays(name):
            model.set_submodule(name, HalfEmbedding(module, STORED[storage], upcast))
