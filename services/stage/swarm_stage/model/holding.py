"""How a slice's weights are held, and where. Plain facts of one load."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from swarm_core.quantization import NONE


@dataclass(frozen=True)
class DeviceLayers:
    """Consecutive layers of the model (not of the slice), half open, on one device ("cpu", "cuda:1")."""

    device: str
    layer_start: int
    layer_stop: int


@dataclass(frozen=True)
class Holding:
    """How weights are held.

    dtype: what is computed in, "F32", "BF16" or "F16". storage_dtype: what full-precision weights are held in, "" is
    dtype. quantization: of linear layers. device_layers: empty puts all on `device`. attention, fourbit_rows,
    fourbit_float32, lora: as the fellow's SWARM_SERVE_* variables say.
    """

    dtype: str
    device: str = "cpu"
    device_layers: tuple[DeviceLayers, ...] = ()
    storage_dtype: str = ""
    quantization: str = NONE
    attention: str = "auto"
    fourbit_rows: str = "auto"
    fourbit_float32: str = "auto"
    lora: str = "lean"


@dataclass(frozen=True)
class AdapterSource:
    """A LoRA adapter on disk. use: "chosen" (by sessions that name it), "always", or "merged" (into the weights).

    tensor_files: name in its manifest -> safetensors file that holds it alone under key "tensor"; those of this stage.
    """

    model_id: str
    use: str
    model_dir: Path
    tensor_files: Mapping[str, str | Path]
