"""Devices that are told apart on a machine without cards: every tensor has a home. For the tests of this folder.

torch takes "cpu:1" and computes there what it is given, wherever it was made; a card would refuse. So does this.
"""

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_MOVES = (torch.ops.aten._to_copy, torch.ops.aten.to)
_WRITES = (torch.ops.aten.copy_,)  # into a tensor that stays where it is


class Homes(TorchDispatchMode):
    """Refuses operations on tensors of two devices. A tensor whose device was never said goes anywhere."""

    def __init__(self) -> None:
        super().__init__()
        self._home: dict[int, str] = {}  # by address of the storage
        self._seen: list[torch.Tensor] = []  # kept, so that no address is used twice
        self.moved = 0  # tensors that went from one device to another

    def home(self, tensor: torch.Tensor) -> str | None:
        return self._home.get(tensor.untyped_storage().data_ptr())

    def __torch_dispatch__(self, operation: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        named = named or {}
        given = [leaf for leaf in tree_leaves((arguments, named)) if isinstance(leaf, torch.Tensor)]
        homes = {self.home(tensor) for tensor in given if tensor.dim()} - {None}
        asked = next((leaf for leaf in tree_leaves((arguments, named)) if isinstance(leaf, torch.device)), None)
        if operation.overloadpacket in _WRITES:
            home = self.home(given[0])
        elif asked is not None and (operation.overloadpacket in _MOVES or not given):
            self.moved += bool(homes - {str(asked)})
            home = str(asked)
        else:
            assert len(homes) <= 1, f"{operation} on tensors of {sorted(homes)}"
            home = homes.pop() if homes else None
        result = operation(*arguments, **named)
        made = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        addresses = {tensor.untyped_storage().data_ptr() for tensor in made} - {0}  # 0: on the meta device, or empty
        self._seen.extend(made)
        if home not in (None, "cpu"):
            self._home.update(dict.fromkeys(addresses, home))
        return result
