"""A Llama-like slice run by our own short chain of products: alone or several sessions at once. No wire, no admission.

Shapes as in lean_layer, with B sessions, T positions and V vocabulary.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from swarm_core.slices import LayerRange
from transformers import PreTrainedConfig, PreTrainedModel

from swarm_stage.model.blas import Multiplier
from swarm_stage.model.kv_cache import SessionCache
from swarm_stage.model.lean_cache import LeanCache
from swarm_stage.model.lean_layer import LeanLayer
from swarm_stage.model.product import side_by_side
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
        device: torch.device,
        longest_tokens: int | None = None,
        is_grouped: bool = True,
    ) -> None:
        """is_grouped: as in LeanLayer; the rest as in SliceModel."""
        decoder: Any = model.model
        rotary, modules = decoder.rotary_emb, decoder.layers
        norm: Any = decoder.norm if layers.is_last else None
        head: Any = model.lm_head if layers.is_last else None
        super().__init__(model, layers, dtype, device, longest_tokens)
        self._rotary = rotary
        self._norm: torch.Tensor | None = norm.weight.data if norm is not None else None
        self._norm_eps: float = norm.variance_epsilon if norm is not None else 0.0
        self._head_times: Multiplier | None = None
        self._embedding_DV: torch.Tensor | None = None
        if head is not None:
            self._turn_head(decoder, head)
        self._layers: list[LeanLayer] = []
        for index in range(len(modules)):
            self._layers.append(LeanLayer(modules[index], is_grouped))
            modules[index] = torch.nn.Identity()  # its weights live on, fused; one layer is held twice at a time
        self._cos_PE = self._sin_PE = torch.empty(0, 0, dtype=dtype, device=device)

    def _turn_head(self, decoder: Any, head: Any) -> None:
        """Hold the head as products want it. An embedding tied to it reads columns of the same copy."""
        is_tied = self.layers.is_first and decoder.embed_tokens.weight is head.weight
        head_DV = side_by_side([head.weight.data])
        self._head_times = Multiplier(head_DV)
        head.weight = None  # one copy is enough; it is the largest matrix of a small model
        if is_tied:
            self._embedding_DV = head_DV
            decoder.embed_tokens = torch.nn.Identity()

    def _embedded(self, ids_T: torch.Tensor) -> torch.Tensor:
        if self._embedding_DV is None:
            return super()._embedded(ids_T)
        return self._embedding_DV[:, ids_T].t().contiguous()[None]

    def new_cache(self, reserved_tokens: int = 0) -> LeanCache:
        first = self._layers[0]
        return LeanCache(len(self._layers), first.kv_heads, first.head_dim, self.dtype, self.device, reserved_tokens)

    @torch.inference_mode()
    def run(self, hidden_BTD: torch.Tensor, cache: SessionCache, pos: int) -> torch.Tensor:
        assert isinstance(cache, LeanCache)
        self._check(hidden_BTD, cache, pos)
        cache.crop(pos)
        hidden_TD = hidden_BTD[0].to(device=self.device, dtype=self.dtype)
        positions, stop = hidden_TD.shape[0], pos + hidden_TD.shape[0]
        cos, sin = self._angles(torch.arange(pos, stop, device=self.device))
        cache.reserve(stop)
        mask = _causal_mask(positions, pos, self.device) if positions > 1 and pos else None
        for layer, (new_k, new_v, *held) in zip(self._layers, cache.rows(pos, stop), strict=True):
            q, k, v = layer.project(hidden_TD, cos, sin)
            new_k.copy_(k.transpose(0, 1))
            new_v.copy_(v.transpose(0, 1))
            attended = layer.attend_one(q, *held) if positions == 1 else layer.attend_many(q, *held, mask, pos == 0)
            hidden_TD = layer.finish(hidden_TD, attended)
        cache.length = stop
        return self._normed(hidden_TD)[None]

    @torch.inference_mode()
    def run_batch(
        self, hidden_B1D: torch.Tensor, caches: Sequence[SessionCache], positions: Sequence[int]
    ) -> torch.Tensor:
        """As SliceModel has it, in one pass that reads every weight once."""
        cos, sin = self._angles(torch.tensor(positions, device=self.device))
        held = [cache for cache in caches if isinstance(cache, LeanCache)]
        assert [cache.length for cache in held] == list(positions)
        for cache, pos in zip(held, positions, strict=True):
            cache.reserve(pos + 1)
        hidden_BD = hidden_B1D[:, 0]
        rows = [cache.rows(pos, pos + 1) for cache, pos in zip(held, positions, strict=True)]
        for layer, *sessions in zip(self._layers, *rows, strict=True):
            q, k, v = (parts.split(1) for parts in layer.project(hidden_BD, cos, sin))
            attended = []
            for q_1HE, k_1KE, v_1KE, (new_k, new_v, *kept) in zip(q, k, v, sessions, strict=True):
                new_k.copy_(k_1KE.transpose(0, 1))
                new_v.copy_(v_1KE.transpose(0, 1))
                attended.append(layer.attend_one(q_1HE, *kept))
            hidden_BD = layer.finish(hidden_BD, torch.cat(attended))
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

    def _angles(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """cos and signed sin of these positions, [N, 1, E], from a table that grows."""
        highest = int(positions[-1]) if positions.numel() == 1 else int(positions.max())
        if highest >= self._cos_PE.shape[0]:
            self._grow_table(highest + ROPE_GROWTH)
        return self._cos_PE[positions, None], self._sin_PE[positions, None]

    def _grow_table(self, positions: int) -> None:
        probe = torch.empty(1, 1, self.hidden_size, dtype=self.dtype, device=self.device)
        cos, sin = self._rotary(probe, torch.arange(positions, device=self.device)[None])
        half = sin.shape[-1] // 2
        self._cos_PE = cos[0].contiguous()
        self._sin_PE = torch.cat([-sin[0, :, :half], sin[0, :, half:]], dim=-1)


def _causal_mask(positions: int, pos: int, device: torch.device) -> torch.Tensor:
    """[T, pos + T]: row t may look at everything up to position pos + t."""
    rows = torch.arange(pos, pos + positions, device=device)
    return torch.arange(pos + positions, device=device)[None] <= rows[:, None]
