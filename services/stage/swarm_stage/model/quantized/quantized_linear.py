"""Linear layers of quantised weights, to stand in a transformers model. Decides nothing; reads no file.

They are bitsandbytes' own kinds of layer, which is what peft looks for, with the products of this stage. bitsandbytes
would repack a 4-bit weight for some processors when it is first called, and round otherwise on those.
"""

from typing import Any

import torch
from torch import nn

from swarm_stage.model.quantized.bitsandbytes_offline import bitsandbytes
from swarm_stage.model.quantized.int8 import THRESHOLD, Int8Weight
from swarm_stage.model.quantized.nf4 import BLOCK, Nf4Weight
from swarm_stage.model.quantized.quantized_weight import QuantizedWeight


class Nf4Linear(bitsandbytes.nn.Linear4bit):
    """A linear layer held in NF4."""

    def __init__(self, linear: nn.Linear, held: Nf4Weight, dtype: torch.dtype) -> None:
        """linear: what it stands for; its weight is not looked at, its bias is taken over. dtype: computed in."""
        inputs, outputs = linear.in_features, linear.out_features
        super().__init__(
            inputs, outputs, False, dtype, compress_statistics=False, quant_type="nf4", device=torch.device("meta")
        )
        self.held = held
        code = bitsandbytes.functional.get_4bit_type("nf4", device=held.packed.device)
        self.quant_state = bitsandbytes.functional.QuantState(
            held.absmax, torch.Size(held.shape), code, BLOCK, "nf4", dtype
        )
        self.weight = bitsandbytes.nn.Params4bit(
            held.packed[:, None],
            quant_state=self.quant_state,
            blocksize=BLOCK,
            compress_statistics=False,
            quant_type="nf4",
            module=self,
            bnb_quantized=True,
        )
        self.scales = nn.Parameter(held.absmax, requires_grad=False)  # the same memory, counted among the parameters
        self.bias = linear.bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """As nn.Linear."""
        return _of_any_shape(self.held, x, self.bias)


class Int8Linear(bitsandbytes.nn.Linear8bitLt):
    """A linear layer held in int8."""

    def __init__(self, linear: nn.Linear, held: Int8Weight) -> None:
        """linear: as in Nf4Linear."""
        inputs, outputs = linear.in_features, linear.out_features
        super().__init__(
            inputs, outputs, False, has_fp16_weights=False, threshold=THRESHOLD, device=torch.device("meta")
        )
        self.held = held
        self.weight = bitsandbytes.nn.Int8Params(held.codes_OI, requires_grad=False)
        self.state.CB, self.state.SCB = held.codes_OI, held.scales_O
        self.scales = nn.Parameter(held.scales_O, requires_grad=False)  # the same memory, as in Nf4Linear
        self.bias = linear.bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """As nn.Linear."""
        return _of_any_shape(self.held, x, self.bias)


def _of_any_shape(held: QuantizedWeight, x: torch.Tensor, bias: Any) -> torch.Tensor:
    """A product of the last dimension, however many stand before it."""
    return held.product(x.reshape(-1, x.shape[-1]), bias).view(*x.shape[:-1], -1)
