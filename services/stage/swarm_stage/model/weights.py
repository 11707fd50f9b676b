"""Tensors from their files into a slice's modules, one at a time. Knows names and shapes, not what a layer computes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from swarm_core.errors import ServableCorrupt
from swarm_core.quantization import is_quantized_weight
from swarm_core.slices import EMBEDDING, HEAD, LayerRange, layer_of
from torch import nn
from transformers import PreTrainedModel

from swarm_stage.model.devices import Spread
from swarm_stage.model.quantized.quantize import Quantize
from swarm_stage.model.weight_memory import empty_weight

TENSOR_KEY = "tensor"
DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
# Stored by old checkpoints, computed from the config by every current one.
_COMPUTED = ("rotary_emb.inv_freq", "attn.masked_bias", "attn.bias")
_LAYER_PREFIX = "model.layers."

# A tensor's name in the checkpoint and what is stored for it -> what is loaded in its place, in any float type.
Amend = Callable[[str, torch.Tensor], torch.Tensor]


def fill_parameters(
    model: PreTrainedModel,
    layers: LayerRange,
    tensor_files: Mapping[str, str | Path],
    spread: Spread,
    on_progress: Callable[[int, int], None],
    amend: Amend | None = None,
    quantize: Quantize | None = None,
) -> None:
    """Replace every parameter of `model` (on the meta device) by its tensor, cast to its type, on its device.

    tensor_files: name in the checkpoint -> safetensors file holding it alone under key "tensor". At most one tensor
    is held twice at any time; only a head tied to embeddings on another device is a copy of them. on_progress gets file
    bytes done and in all. amend: sees every tensor before it is cast or quantised. quantize: makes the linear layers of
    decoder layers; None leaves them at full precision.
    Raises ServableCorrupt naming the tensor that is missing, unreadable, of another shape, not finite, or of a layer
    but of no use.
    """
    tied = bool(model.config.tie_word_embeddings)
    wanted = {
        parameter_name: _checkpoint_name(parameter_name, layers, tensor_files, tied)
        for parameter_name, _ in model.named_parameters(remove_duplicate=False)
    }
    _refuse_unused(set(wanted.values()), layers, tensor_files)
    file_bytes = {name: Path(tensor_files[name]).stat().st_size for name in set(wanted.values())}
    total_bytes, done_bytes = sum(file_bytes.values()), 0
    filled: dict[tuple[str, str], nn.Parameter] = {}  # a tied head shares the embedding's parameter
    read: set[str] = set()
    on_progress(0, total_bytes)
    for parameter_name, tensor_name in wanted.items():
        module_name, _, leaf = parameter_name.rpartition(".")
        module = model.get_submodule(module_name)
        empty, device = getattr(module, leaf), spread.device_of(parameter_name)
        if (tensor_name, device) not in filled:
            source = _Source(tensor_name, tensor_files[tensor_name], tuple(empty.shape), amend)
            done_bytes += 0 if tensor_name in read else file_bytes[tensor_name]
            read.add(tensor_name)
            if quantize is not None and is_quantized_weight(tensor_name) and isinstance(module, nn.Linear):
                model.set_submodule(module_name, quantize(tensor_name, module, source.read(), torch.device(device)))
                on_progress(done_bytes, total_bytes)
                continue
            tensor = _held_tensor(tensor_name, source.read(), empty.dtype, torch.device(device))
            filled[tensor_name, device] = nn.Parameter(tensor, requires_grad=False)
            on_progress(done_bytes, total_bytes)
        setattr(module, leaf, filled[tensor_name, device])


@dataclass(frozen=True)
class _Source:
    """Where a tensor comes from. Whoever reads it lets go of it, so that no two are in memory as they are stored."""

    name: str
    path: str | Path
    shape: tuple[int, ...]
    amend: Amend | None

    def read(self) -> torch.Tensor:
        """What is stored, amended. Raises ServableCorrupt."""
        stored = _stored_tensor(self.name, self.path, self.shape)
        return stored if self.amend is None else self.amend(self.name, stored)


def read_tensor(
    name: str, path: str | Path, expected_shape: tuple[int, ...], dtype: torch.dtype, device: torch.device
) -> torch.Tensor:
    """One tensor in memory of its own. Raises ServableCorrupt naming it, also when it holds no numbers."""
    return _held_tensor(name, _stored_tensor(name, path, expected_shape), dtype, device)


def _stored_tensor(name: str, path: str | Path, expected_shape: tuple[int, ...]) -> torch.Tensor:
    """A tensor as it lies in its file, seen through a mapping: read, checked and held by nobody."""
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            stored = file.get_tensor(TENSOR_KEY)
    except (OSError, SafetensorError) as error:
        raise ServableCorrupt(f"tensor {name} cannot be read from {path}: {error}", tensor=name) from error
    if tuple(stored.shape) != expected_shape:
        raise ServableCorrupt(
            f"tensor {name} has shape {list(stored.shape)}, the config needs {list(expected_shape)}", tensor=name
        )
    if not stored.is_floating_point():
        raise ServableCorrupt(f"tensor {name} is of type {stored.dtype}, not a float", tensor=name)
    if not is_finite(stored):
        raise ServableCorrupt(f"tensor {name} is corrupt: it holds NaN or infinity", tensor=name)
    return stored


def _held_tensor(name: str, stored: torch.Tensor, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Copied off the file's mapping even when nothing is cast: torch aligns its own memory, and matrix kernels may
    round differently on another alignment.
    """
    held = empty_weight(tuple(stored.shape), dtype, device).copy_(stored)
    if dtype is not stored.dtype and not is_finite(held):
        spelled = str(dtype).removeprefix("torch.")
        raise ServableCorrupt(f"tensor {name} holds numbers too large for {spelled}", tensor=name)
    return held


def is_finite(tensor: torch.Tensor) -> bool:
    """Whether a tensor holds only numbers. Its extremes say so: NaN is both of them. isfinite().all() takes 20 times as
    long and half the tensor's memory (docs/measurements/2026-11-quantised.md).
    """
    if not tensor.numel():
        return True
    lowest, highest = torch.aminmax(tensor)
    return bool(lowest.isfinite() & highest.isfinite())


def _checkpoint_name(
    parameter_name: str, layers: LayerRange, tensor_files: Mapping[str, str | Path], tied: bool
) -> str:
    """The checkpoint's name of a slice's parameter. Raises ServableCorrupt when there is no file for it."""
    name = parameter_name
    if name.startswith(_LAYER_PREFIX):
        index, _, rest = name.removeprefix(_LAYER_PREFIX).partition(".")
        name = f"{_LAYER_PREFIX}{int(index) + layers.layer_start}.{rest}"
    elif name == HEAD and tied and HEAD not in tensor_files:
        name = EMBEDDING
    if name not in tensor_files:
        raise ServableCorrupt(f"tensor {name} is missing", tensor=name)
    return name


def _refuse_unused(used: set[str], layers: LayerRange, tensor_files: Mapping[str, str | Path]) -> None:
    """A tensor of one of our layers that no module takes means the config describes another model."""
    for name in tensor_files:
        layer = layer_of(name)
        ours = layer is not None and layers.layer_start <= layer < layers.layer_stop
        if ours and name not in used and not name.endswith(_COMPUTED):
            raise ServableCorrupt(f"tensor {name} has no place in the model config.json describes", tensor=name)
