"""A Llama-like slice run by our own short chain of products: alone or several sessions at once. No wire, no admission.

Shapes as in layer.py, with B sessions, T positions and V vocabulary.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from swarm_core.slices import LayerRange
from transformers import PreTrainedConfig, PreTrainedModel

from swarm_stage.model.adapters.choice import BASE, AdapterChoice
from swarm_stage.model.devices import Spread
from swarm_stage.model.kv_cache import SessionCache
from swarm_stage.model.lean.cache import LeanCache, SpreadCache
from swarm_stage.model.lean.layer import LeanLayer
from swarm_stage.model.lean.part import LeanPart
from swarm_stage.model.products.half import multiplier_of
from swarm_stage.model.products.product import Times, side_by_side
from swarm_stage.model.quantized.quantized_weight import Change
from swarm_stage.model.slice_model import SliceModel

MODEL_TYPES = frozenset({"llama", "mistral", "qwen2", "qwen3"})
ROPE_TYPES = frozenset({"default", "linear", "llama3"})  # those whose angles do not depend on the length of a prompt
ROPE_GROWTH = 1024


def is_lean(whole: PreTrainedConfig, dtype: torch.dtype) -> bool:
    """Whether slices of this model are run here; transformers' own forward runs every other one.

    Asked of the whole model, never of a slice: every split must round alike. Half precision is left to transformers
    until it has been measured on a card.
    """
    kinds = getattr(whole, "layer_types", None)
    # Mistral has no kinds per layer: its window, if any, is every layer's.
    has_window = "sliding_attention" in kinds if kinds else bool(getattr(whole, "sliding_window", None))
    rope = getattr(whole, "rope_parameters", None) or {}
    return (
        whole.model_type in MODEL_TYPES
        and dtype is torch.float32
        and not has_window
        and rope.get("rope_type", "default") in ROPE_TYPES
    )


class LeanSlice(SliceModel):
    """SliceModel with fused products, KV that grows in place, and batches of sessions at different lengths."""

    batches = True

    def __init__(
        self,
        model: PreTrainedModel,
        layers: LayerRange,
        dtype: torch.dtype,
        spread: Spread,
        longest_tokens: int | None = None,
        is_grouped: bool = True,
        adapters: AdapterChoice | None = None,
    ) -> None:
        """is_grouped: as in LeanLayer; the rest as in SliceModel."""
        decoder: Any = model.model
        rotary, modules = decoder.rotary_emb, decoder.layers
        norm: Any = decoder.norm if layers.is_last else None
        head: Any = model.lm_head if layers.is_last else None
        super().__init__(model, layers, dtype, spread, longest_tokens, adapters)
        self._rotary = rotary
        self._norm: torch.Tensor | None = norm.weight.data if norm is not None else None
        self._norm_eps: float = norm.variance_epsilon if norm is not None else 0.0
        self._head_times: Times | None = None
        self._embedding_DV: torch.Tensor | None = None
        if head is not None:
            self._turn_head(decoder, head)
        self._parts: list[LeanPart] = []
        for run in spread.runs:
            lean: list[LeanLayer] = []
            for index in range(run.layer_start, run.layer_stop):
                lean.append(LeanLayer(modules[index], is_grouped))
                modules[index] = torch.nn.Identity()  # its weights live on, fused; one layer is held twice at a time
            self._parts.append(LeanPart(torch.device(run.device), lean, dtype))
        self._table_positions = 0

    def _turn_head(self, decoder: Any, head: Any) -> None:
        """Hold the head as products want it. An embedding tied to it reads columns of the same copy."""
        is_tied = self.layers.is_first and decoder.embed_tokens.weight is head.weight
        head_DV = side_by_side([head.weight.data])
        self._head_times = multiplier_of(head)(head_DV)
        head.weight = None  # one copy is enough; it is the largest matrix of a small model
        if is_tied:
            self._embedding_DV = head_DV
            decoder.embed_tokens = torch.nn.Identity()

    def _embedded(self, ids_T: torch.Tensor) -> torch.Tensor:
        if self._embedding_DV is None:
            return super()._embedded(ids_T)
        return self._embedding_DV[:, ids_T].t().to(self.dtype).contiguous()[None]

    def replace_quantized(self, layer: int, change: Change) -> None:
        [lean for part in self._parts for lean in part.layers][layer].replace_quantized(change)

    def new_cache(self, reserved_tokens: int = 0, adapter: int = BASE) -> LeanCache:
        first = self._parts[0].layers[0]
        caches = [
            LeanCache(len(part.layers), first.kv_heads, first.head_dim, self.dtype, part.device, reserved_tokens)
            for part in self._parts
        ]
        cache = caches[0] if len(caches) == 1 else SpreadCache(caches)
        cache.adapter = adapter
        return cache

    @torch.inference_mode()
    def run(self, hidden_BTD: torch.Tensor, cache: SessionCache, pos: int) -> torch.Tensor:
        assert isinstance(cache, LeanCache)
        self._check(hidden_BTD, cache, pos)
        cache.crop(pos)
        hidden_TD = hidden_BTD[0].to(device=self.device, dtype=self.dtype)
        positions, stop = hidden_TD.shape[0], pos + hidden_TD.shape[0]
        positions_N = self._rotated(torch.arange(pos, stop, device=self.device))
        chosen = (cache.adapter,) * positions if cache.adapter else None
        cache.reserve(stop)
        rows = iter(cache.rows(pos, stop))  # every part takes those of its own layers
        for part in self._parts:
            hidden_TD = hidden_TD.to(part.device)
            cos, sin = part.angles(positions_N)
            mask = part.causal_mask(positions, pos)
            for layer, (new_k, new_v, *held) in zip(part.layers, rows, strict=False):
                q, k, v = layer.project(hidden_TD, cos, sin, chosen)
                new_k.copy_(k.transpose(0, 1))
                new_v.copy_(v.transpose(0, 1))
                attended = layer.attend_one(q, *held) if positions == 1 else layer.attend_many(q, *held, mask, pos == 0)
                hidden_TD = layer.finish(hidden_TD, attended, chosen)
        cache.length = stop
        return self._normed(hidden_TD)[None]

    @torch.inference_mode()
    def run_batch(
        self, hidden_B1D: torch.Tensor, caches: Sequence[SessionCache], positions: Sequence[int]
    ) -> torch.Tensor:
        """As SliceModel has it, in one pass that reads every weight once."""
        order = sorted(range(len(caches)), key=lambda row: caches[row].adapter)
        if order != list(range(len(caches))):  # so that sessions of one adapter are neighbours
            hidden_B1D = self.run_batch(
                hidden_B1D[order], [caches[row] for row in order], [positions[row] for row in order]
            )
            return hidden_B1D[torch.tensor(order).argsort()]
        positions_N = self._rotated(torch.tensor(positions, device=self.device))
        held = [cache for cache in caches if isinstance(cache, LeanCache)]
        assert [cache.length for cache in held] == list(positions)
        for cache, pos in zip(held, positions, strict=True):
            cache.reserve(pos + 1)
        chosen = tuple(cache.adapter for cache in held) if any(cache.adapter for cache in held) else None
        hidden_BD = hidden_B1D[:, 0]
        rows = zip(*(cache.rows(pos, pos + 1) for cache, pos in zip(held, positions, strict=True)), strict=True)
        for part in self._parts:
            hidden_BD = hidden_BD.to(part.device)
            cos, sin = part.angles(positions_N)
            for layer, sessions in zip(part.layers, rows, strict=False):
                q, k, v = (parts.split(1) for parts in layer.project(hidden_BD, cos, sin, chosen))
                attended = []
                for q_1HE, k_1KE, v_1KE, (new_k, new_v, *kept) in zip(q, k, v, sessions, strict=True):
                    new_k.copy_(k_1KE.transpose(0, 1))
                    new_v.copy_(v_1KE.transpose(0, 1))
                    attended.append(layer.attend_one(q_1HE, *kept))
                hidden_BD = layer.finish(hidden_BD, torch.cat(attended), chosen)
        for cache, pos in zip(held, positions, strict=True):
            cache.length = pos + 1
        return self._normed(hidden_BD)[:, None]

    @torch.inference_mode()
    def logits_batch(self, hidden_BTD: torch.Tensor) -> torch.Tensor:
        """logits_BV of the last position of each session, float32. Last stage only."""
        assert self._head_times is not None, self.layers
        return self._head_times(hidden_BTD[:, -1]).float()

    def logits(self, hidden_BTD: torch.Tensor) -> torch.Tensor:
        return self.logits_batch(hidden_BTD)[0]

    def _normed(self, hidden_ND: torch.Tensor) -> torch.Tensor:
        if self._norm is None:
            return hidden_ND
        return F.rms_norm(hidden_ND, hidden_ND.shape[-1:], self._norm, self._norm_eps)

    def _rotated(self, positions_N: torch.Tensor) -> torch.Tensor:
        """The same positions, once the rotary tables of every device reach them."""
        highest = int(positions_N[-1]) if positions_N.numel() == 1 else int(positions_N.max())
        if highest >= self._table_positions:
            self._grow_tables(highest + ROPE_GROWTH)
        return positions_N

    def _grow_tables(self, positions: int) -> None:
        probe = torch.empty(1, 1, self.hidden_size, dtype=self.dtype, device=self.device)
        cos, sin = self._rotary(probe, torch.arange(positions, device=self.device)[None])
        half = sin.shape[-1] // 2
        cos_PE, sin_PE = cos[0].contiguous(), torch.cat([-sin[0, :, :half], sin[0, :, half:]], dim=-1)
        for part in self._parts:
            part.take_tables(cos_PE, sin_PE)
        self._table_positions = positions
