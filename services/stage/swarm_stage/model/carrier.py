"""Brings what a layer is given to the layer's device. Knows no model and decides no place."""

from typing import Any

import torch
from torch import nn


class Carrier:
    """Moves the arguments of modules, each tensor once a device until it is told to forget.

    Rotary angles and masks are given to every layer alike; without a memory each layer would move them again.
    """

    def __init__(self) -> None:
        self._moved: dict[tuple[int, torch.device], tuple[torch.Tensor, torch.Tensor]] = {}

    def deliver_to(self, module: nn.Module, device: torch.device) -> None:
        """From now on everything `module` is called with is on `device`."""

        def deliver(_: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
            return self._carried(arguments, device), {
                name: self._carried(value, device) for name, value in named.items()
            }

        module.register_forward_pre_hook(deliver, with_kwargs=True)

    def forget(self) -> None:
        """Let go of everything moved; called when a forward ends."""
        self._moved.clear()

    def _carried(self, value: Any, device: torch.device) -> Any:
        if isinstance(value, torch.Tensor):
            return self._carried_tensor(value, device)
        if type(value) in (tuple, list):
            return type(value)(self._carried(part, device) for part in value)
        return value

    def _carried_tensor(self, tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
        known = self._moved.get((id(tensor), device))
        if known is not None:
            return known[1]
        moved = tensor.to(device)
        if moved is not tensor:
            self._moved[id(tensor), device] = (tensor, moved)  # held, so that no other tensor gets its id
        return moved
