"""Products of linear layers with adapters beside them, an adapter a row. Reads no file; knows no session.

Shapes: N rows, I inputs, O outputs.
"""

from collections.abc import Sequence

import torch
from torch import nn

from swarm_stage.model.adapters.adapted_linear import AdaptedLinear, LeanLinear, low_rank_sums
from swarm_stage.model.adapters.choice import Chosen, runs_of
from swarm_stage.model.products.product import Product
from swarm_stage.model.products.product_of import product_of
from swarm_stage.model.products.quantized_product import QuantizedProduct
from swarm_stage.model.quantized.quantized_weight import Change, replace_held


class AdaptedProduct:
    """Whatever product the base is, plus what each row's adapter adds.

    Neighbouring rows that chose alike are one product; whoever gives the rows sorts them.
    """

    def __init__(self, linears: Sequence[nn.Module]) -> None:
        self._base = product_of([linear.base if isinstance(linear, LeanLinear) else linear for linear in linears])
        always = frozenset().union(*(linear.always for linear in linears if isinstance(linear, LeanLinear)))
        sums = low_rank_sums(linears)
        self._always = [sums.pop(place) for place in list(sums) if place in always]
        self._chosen = sums

    def __call__(self, x_NI: torch.Tensor, chosen: Chosen = None) -> torch.Tensor:
        return self._adapted(self._base(x_NI), x_NI, chosen)

    def added_to(self, base_NO: torch.Tensor, x_NI: torch.Tensor, chosen: Chosen = None) -> torch.Tensor:
        return self._adapted(self._base.added_to(base_NO, x_NI), x_NI, chosen)

    def replace_quantized(self, change: Change) -> None:
        """As QuantizedProduct, of the base."""
        if isinstance(self._base, QuantizedProduct):
            self._base.replace_quantized(change)

    def _adapted(self, y_NO: torch.Tensor, x_NI: torch.Tensor, chosen: Chosen) -> torch.Tensor:
        for low_rank in self._always:
            low_rank.add_to(y_NO, x_NI)
        if chosen is not None and self._chosen:
            for start, stop, place in runs_of(chosen, x_NI.shape[0]):
                if place in self._chosen:
                    self._chosen[place].add_to(y_NO[start:stop], x_NI[start:stop])
        return y_NO


class OneByOneProduct:
    """Layers that only they themselves can run (peft's), one after another, side by side."""

    def __init__(self, linears: Sequence[nn.Module]) -> None:
        self._linears = linears

    def __call__(self, x_NI: torch.Tensor, chosen: Chosen = None) -> torch.Tensor:
        runs = runs_of(chosen, x_NI.shape[0])
        return torch.cat([self._outputs(x_NI[start:stop], place) for start, stop, place in runs])

    def added_to(self, base_NO: torch.Tensor, x_NI: torch.Tensor, chosen: Chosen = None) -> torch.Tensor:
        return self(x_NI, chosen).add_(base_NO)

    def replace_quantized(self, change: Change) -> None:
        """As QuantizedProduct, of every layer's base."""
        for linear in self._linears:
            replace_held(linear, change)

    def _outputs(self, x_NI: torch.Tensor, place: int) -> torch.Tensor:
        return torch.cat(
            [
                linear.apply_at(x_NI, place) if isinstance(linear, AdaptedLinear) else linear(x_NI)
                for linear in self._linears
            ],
            dim=-1,
        )


def adapted_product_of(linears: Sequence[nn.Module]) -> Product:
    """As product_of, for layers that may have adapters beside them; where none has, the very same product."""
    adapted = [linear for linear in linears if isinstance(linear, AdaptedLinear)]
    if not adapted:
        return product_of(linears)
    if all(isinstance(linear, LeanLinear) for linear in adapted):
        return AdaptedProduct(linears)
    return OneByOneProduct(linears)
