"""One Llama-like layer as few, large matrix products. Plain torch; knows no session and no split.

Shapes: N rows (positions of one session, or one position of N sessions), D hidden size, H query heads, K kv heads,
G = H / K, E head dim, F feed-forward width, L positions held.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from swarm_stage.model.adapters.choice import Chosen
from swarm_stage.model.inner_codecs import BEHIND, InnerBoundary
from swarm_stage.model.products.adapted_product import AdaptedProduct, OneByOneProduct, adapted_product_of
from swarm_stage.model.products.product_of import ProductOf
from swarm_stage.model.products.quantized_product import QuantizedProduct
from swarm_stage.model.quantized.quantized_weight import Change


class LeanLayer:
    """The weights of one transformers decoder layer, q/k/v and gate/up side by side.

    A decode step reads every weight once and multiplies it by few rows, so the number of calls counts: one product for
    q, k and v and one for gate and up instead of five (docs/measurements/2026-11-first-ring.md).
    """

    def __init__(self, layer: Any, is_grouped: bool, make: ProductOf = adapted_product_of) -> None:
        """is_grouped: the queries of one kv head are rows of one product; else attention takes each head alone."""
        self._is_grouped = is_grouped
        attention, mlp = layer.self_attn, layer.mlp
        self.head_dim: int = attention.head_dim
        projections = (attention.q_proj, attention.k_proj, attention.v_proj)
        self.query_heads = attention.q_proj.out_features // self.head_dim
        self.kv_heads = attention.k_proj.out_features // self.head_dim
        self.scaling: float = attention.scaling
        self._qkv = make(projections)
        self._out = make([attention.o_proj])
        self._gate_up = make([mlp.gate_proj, mlp.up_proj])
        self._down = make([mlp.down_proj])
        self._activation: Callable[[torch.Tensor], torch.Tensor] = mlp.act_fn
        self._attention_norm, self._eps = layer.input_layernorm.weight.data, layer.input_layernorm.variance_epsilon
        self._mlp_norm = layer.post_attention_layernorm.weight.data
        self._qk_norm = _joined_qk_norm(attention, self.query_heads, self.kv_heads)
        self._boundary: InnerBoundary | None = getattr(layer, BEHIND, None)

    def replace_quantized(self, change: Change) -> None:
        """Hold what `change` makes of each quantised weight instead; the others stay."""
        for product in (self._qkv, self._out, self._gate_up, self._down):
            if isinstance(product, QuantizedProduct | AdaptedProduct | OneByOneProduct):
                product.replace_quantized(change)

    def project(
        self, hidden_ND: torch.Tensor, cos_N1E: torch.Tensor, sin_N1E: torch.Tensor, chosen: Chosen = None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """q_NHE, k_NKE (both rotated) and v_NKE. sin is signed: its first half negated."""
        rows = hidden_ND.shape[0]
        normed_ND = F.rms_norm(hidden_ND, hidden_ND.shape[-1:], self._attention_norm, self._eps)
        qkv = self._qkv(normed_ND, chosen).view(rows, -1, self.head_dim)
        qk = qkv[:, : self.query_heads + self.kv_heads]
        if self._qk_norm is not None:
            qk = F.rms_norm(qk, qk.shape[-1:], None, self._eps) * self._qk_norm
        qk = torch.addcmul(qk * cos_N1E, qk.roll(self.head_dim // 2, -1), sin_N1E)
        return qk[:, : self.query_heads], qk[:, self.query_heads :], qkv[:, self.query_heads + self.kv_heads :]

    def attend_one(self, q_1HE: torch.Tensor, k_1KLE: torch.Tensor, v_1KLE: torch.Tensor) -> torch.Tensor:
        """One position over all that is held: [1, H * E]. Keys and values are read where they lie, never repeated."""
        if not self._is_grouped:
            return self.attend_many(q_1HE, k_1KLE, v_1KLE, None, is_causal=False)
        q_1KGE = q_1HE.view(1, self.kv_heads, -1, self.head_dim)
        return F.scaled_dot_product_attention(q_1KGE, k_1KLE, v_1KLE, scale=self.scaling).reshape(1, -1)

    def attend_many(
        self,
        q_NHE: torch.Tensor,
        k_1KLE: torch.Tensor,
        v_1KLE: torch.Tensor,
        mask_NL: torch.Tensor | None,
        is_causal: bool,
    ) -> torch.Tensor:
        """Consecutive positions of one session, [N, H * E]. is_causal: nothing was held before them, and no mask."""
        out_1HNE = F.scaled_dot_product_attention(
            q_NHE.transpose(0, 1)[None],
            k_1KLE,
            v_1KLE,
            attn_mask=mask_NL,
            is_causal=is_causal,
            scale=self.scaling,
            enable_gqa=True,
        )
        return out_1HNE[0].transpose(0, 1).reshape(q_NHE.shape[0], -1)

    def finish(self, hidden_ND: torch.Tensor, attended: torch.Tensor, chosen: Chosen = None) -> torch.Tensor:
        """What the layer makes of its input and its attention, hidden_ND."""
        hidden_ND = self._out.added_to(hidden_ND, attended, chosen)
        normed_ND = F.rms_norm(hidden_ND, hidden_ND.shape[-1:], self._mlp_norm, self._eps)
        gate, up = self._gate_up(normed_ND, chosen).chunk(2, dim=-1)
        hidden_ND = self._down.added_to(hidden_ND, self._activation(gate) * up, chosen)
        return hidden_ND if self._boundary is None else self._boundary(hidden_ND)


def _joined_qk_norm(attention: Any, query_heads: int, kv_heads: int) -> torch.Tensor | None:
    """Norm weights of every query and key head, [H + K, E]; None for families without."""
    if not hasattr(attention, "q_norm"):
        return None
    q, k = attention.q_norm.weight.data, attention.k_norm.weight.data
    return torch.cat([q.expand(query_heads, -1), k.expand(kv_heads, -1)]).contiguous()
