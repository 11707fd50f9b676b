"""Linear layers with adapters beside their weights, in place of the bare ones. Reads no file; knows no cache.

transformers' own forward runs them as modules, one session at a time; products/ makes products of them.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

import torch
from swarm_core.slices import LayerRange
from torch import nn

from swarm_stage.model.adapters.adapter import ALWAYS, CHOSEN, LEAN16, MERGED, PEFT, Adapter, LowRank, module_in_slice
from swarm_stage.model.adapters.choice import BASE, AdapterChoice
from swarm_stage.model.adapters.low_rank import LowRankSum


class AdaptedLinear(nn.Module):
    """A linear layer with adapters beside it."""

    def __init__(self, base: Any, choice: AdapterChoice) -> None:
        super().__init__()
        self.base = base
        self.in_features, self.out_features = base.in_features, base.out_features
        self._choice = choice

    def apply_at(self, x: torch.Tensor, place: int) -> torch.Tensor:
        """What the layer gives with the adapter of this place, in a tensor of its own."""
        raise NotImplementedError

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.apply_at(x, self._choice.place)


class LeanLinear(AdaptedLinear):
    """Our own arithmetic: A x, and B of it added to what the base gave. An adapter nobody chose costs memory alone."""

    def __init__(
        self,
        base: Any,
        choice: AdapterChoice,
        parts: Mapping[int, LowRank],
        always: frozenset[int],
        dtype: torch.dtype,
    ) -> None:
        """parts: by their adapters' places. always: those that take effect in every session. dtype: of adapters."""
        super().__init__(base, choice)
        self.dtype = dtype
        self.always = always
        self.held = {place: self._hold(place, part) for place, part in parts.items()}
        self._sums = low_rank_sums([self])

    def _hold(self, place: int, part: LowRank) -> tuple[torch.Tensor, torch.Tensor]:
        """a_RI, and b_RO with the scale in it. Registered, so that they count as weights."""
        device = next(chain(self.base.parameters(), self.base.buffers())).device
        a_RI = part.a_RI.to(device, self.dtype)
        b_RO = (part.b_OR * part.scale).t().to(device, self.dtype).contiguous()
        self.register_parameter(f"a_{place}", nn.Parameter(a_RI, requires_grad=False))
        self.register_parameter(f"b_{place}", nn.Parameter(b_RO, requires_grad=False))
        return a_RI, b_RO

    def apply_at(self, x: torch.Tensor, place: int) -> torch.Tensor:
        y = self.base(x)
        for adapter, low_rank in self._sums.items():
            if adapter == place or adapter in self.always:
                low_rank.add_to(y.view(-1, y.shape[-1]), x.reshape(-1, x.shape[-1]))
        return y


def low_rank_sums(linears: Sequence[Any]) -> dict[int, LowRankSum]:
    """What each adapter adds to layers whose outputs stand side by side, by its place."""
    parts: dict[int, list[tuple[int, torch.Tensor, torch.Tensor]]] = {}
    output_start, dtype = 0, torch.float32
    for linear in linears:
        if isinstance(linear, LeanLinear):
            dtype = linear.dtype
            for place, (a_RI, b_RO) in linear.held.items():
                parts.setdefault(place, []).append((output_start, a_RI, b_RO))
        output_start += int(linear.out_features)
    return {place: LowRankSum(of_place, dtype) for place, of_place in parts.items()}


def hold_adapters(
    model: nn.Module, adapters: Sequence[Adapter], layers: LayerRange, lora: str, dtype: torch.dtype
) -> AdapterChoice | None:
    """Put the unmerged adapters beside the layers they change; None when there is no adapter at all.

    model: a slice with its weights, each on its device. lora: how they are computed, one of adapter.PATHS. dtype: what
    the slice computes in.
    Raises CapabilityMissing when that is by peft and peft is not installed.
    """
    if not adapters:
        return None
    places = {adapter.model_id: place for place, adapter in enumerate(adapters, 1)}
    chosen = {adapter.model_id for adapter in adapters if adapter.use == CHOSEN}
    choice = AdapterChoice({name: place if name in chosen else BASE for name, place in places.items()})
    held = {places[adapter.model_id]: adapter for adapter in adapters if adapter.use != MERGED}
    always = frozenset(place for place, adapter in held.items() if adapter.use == ALWAYS)
    if lora == PEFT and held:
        from swarm_stage.model.adapters.by_peft import hold_by_peft  # peft is optional, and takes a second to import

        hold_by_peft(model, held, layers, choice, always)
        return choice
    adapter_dtype = dtype if lora == LEAN16 else torch.float32
    for module in dict.fromkeys(module for adapter in held.values() for module in adapter.parts):
        parts = {place: adapter.parts[module] for place, adapter in held.items() if module in adapter.parts}

        def beside(base: nn.Module, parts: Mapping[int, LowRank] = parts) -> nn.Module:
            return LeanLinear(base, choice, parts, always, adapter_dtype)

        replace_module(model, module_in_slice(module, layers), beside)
    return choice


def replace_module(model: nn.Module, path: str, make: Callable[[nn.Module], nn.Module]) -> None:
    """Put what `make` makes of a module in its place."""
    parent_path, _, leaf = path.rpartition(".")
    parent = model.get_submodule(parent_path)
    setattr(parent, leaf, make(getattr(parent, leaf)))
