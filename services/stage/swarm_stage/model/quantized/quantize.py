"""Chooses how linear layers are quantised while they load, and refuses what cannot be. Reads no file."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from swarm_core.errors import CapabilityMissing, ServableCorrupt
from swarm_core.quantization import INT4_FAST, INT8, METHODS, NF4, NONE
from torch import nn

# (name in the checkpoint, the layer without its weight, the weight as stored, the device it goes to) -> the layer.
Quantize = Callable[[str, nn.Linear, torch.Tensor, torch.device], nn.Module]


@dataclass(frozen=True)
class LinearPlace:
    """A linear layer that will be quantised, and the device it goes to."""

    outputs: int
    inputs: int
    device: torch.device


@dataclass(frozen=True)
class Quantizer:
    """What a load does with linear layers. quantize: None leaves them as they are. notes: for people, on what it is."""

    method: str
    quantize: Quantize | None
    notes: tuple[str, ...] = ()


def quantizer_of(method: str, dtype: torch.dtype, linears: Sequence[LinearPlace]) -> Quantizer:
    """How a slice's linear layers are held. dtype: computed in, and what bitsandbytes quantises from.

    linears: those to be quantised. int4-fast is tried on each of their devices; where its kernels cannot run, or cannot
    take one of these layers, it is NF4 with a note that says why.
    Raises CapabilityMissing for a method that does not exist here, or without the library it needs.
    """
    if method in (NONE, ""):
        return Quantizer(NONE, None)
    if method not in METHODS:
        raise CapabilityMissing(f"quantization {method[:40]!r} does not exist; one of: {', '.join(METHODS)}")
    if method == INT4_FAST:
        from swarm_stage.model.quantized.int4_trial import (
            why_not_int4,  # torchao is optional, and takes a second to import
        )

        why_not = why_not_int4(linears)
        if why_not is None:
            return Quantizer(INT4_FAST, _int4)
        note = f"{INT4_FAST} cannot run here ({why_not}); held in {NF4} instead"
        return Quantizer(NF4, _by_bitsandbytes(NF4, dtype), (note,))
    return Quantizer(method, _by_bitsandbytes(method, dtype))


def _by_bitsandbytes(method: str, dtype: torch.dtype) -> Quantize:
    try:
        from swarm_stage.model.quantized.int8 import quantize_int8
        from swarm_stage.model.quantized.nf4 import quantize_nf4
        from swarm_stage.model.quantized.quantized_linear import Int8Linear, Nf4Linear
    except ImportError as error:
        raise CapabilityMissing(f"{method} needs bitsandbytes, which cannot be imported: {error}") from error

    def nf4(name: str, linear: nn.Linear, stored_OI: torch.Tensor, device: torch.device) -> nn.Module:
        held = quantize_nf4(stored_OI, dtype, device)
        _refuse_too_large(name, held.absmax, f"{_spelled(dtype)}, which {NF4} is made from")
        return Nf4Linear(linear, held, dtype)

    def int8(name: str, linear: nn.Linear, stored_OI: torch.Tensor, device: torch.device) -> nn.Module:
        held = quantize_int8(stored_OI, dtype, device)
        _refuse_too_large(name, held.scales_O, f"float16, which {INT8} is made from")
        return Int8Linear(linear, held)

    return nf4 if method == NF4 else int8


def _int4(name: str, linear: nn.Linear, stored_OI: torch.Tensor, device: torch.device) -> nn.Module:
    from swarm_stage.model.quantized.int4 import Int4Linear, quantize_int4

    held = quantize_int4(stored_OI, device)
    _refuse_too_large(name, held.scales_and_zeros, f"bfloat16, which {INT4_FAST} is made from")
    return Int4Linear(linear, held)


def _refuse_too_large(name: str, scales: torch.Tensor, made_from: str) -> None:
    """Scales are as finite as what was scaled; that the stored numbers are was seen before."""
    if not scales.isfinite().all():
        raise ServableCorrupt(f"tensor {name} holds numbers too large for {made_from}", tensor=name)


def _spelled(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
