"""The weight files of a checkpoint: which there are, and every tensor in them. Reads indexes and headers only."""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from swarm_core.errors import BadRequest, ServableCorrupt
from swarm_core.manifest import TENSORS_MAX

from swarm_leader.catalog.sources.config_json import parse_json_object
from swarm_leader.catalog.sources.header import TensorSpan, read_header
from swarm_leader.catalog.sources.small_files import INDEX_NAME, real_file

WEIGHT_FILE = re.compile(r"[A-Za-z0-9_][\w.-]{0,88}\.safetensors", re.ASCII)
PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
_WEIGHT_FILES_MAX = 4096
HeaderOf = Callable[[str], Mapping[str, TensorSpan]]  # file's name in the checkpoint -> its tensors


@dataclass(frozen=True)
class Weight:
    """One tensor of the checkpoint. path: its file, real path; file: that file's name in the checkpoint."""

    path: Path
    file: str
    span: TensorSpan


def choose_weight_files(names: Collection[str], index: bytes | None) -> list[str]:
    """The weight files of a checkpoint whose top folder holds `names`; index: its model.safetensors.index.json.

    Raises BadRequest when there are none that can be read, ServableCorrupt when the index is broken or leads elsewhere.
    """
    if index is not None:
        files = sorted(set(_weight_map(index).values()))
        if len(files) > _WEIGHT_FILES_MAX:
            raise ServableCorrupt(f"{INDEX_NAME} names {len(files)} files, more than {_WEIGHT_FILES_MAX}")
        return files
    if "model.safetensors" in names:
        return ["model.safetensors"]
    weights = sorted(name for name in names if WEIGHT_FILE.fullmatch(name))
    if weights == ["adapter_model.safetensors"]:
        raise BadRequest("this is a LoRA adapter without its adapter_config.json", field="source")
    if len(weights) == 1:
        return weights
    if weights:
        raise BadRequest(
            f"there are {len(weights)} safetensors files but no {INDEX_NAME} that orders them", field="source"
        )
    pickled = sorted(name for name in names if name.lower().endswith(PICKLED))
    if pickled:
        raise BadRequest(
            f"the weights are pickled ({pickled[0]}); reading those can run code. Convert them to safetensors first.",
            field="source",
        )
    raise BadRequest("there are no weights (*.safetensors)", field="source")


def _weight_map(index: bytes) -> dict[str, str]:
    """Tensor name -> file name, both from the index."""
    weight_map = parse_json_object(index, INDEX_NAME).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ServableCorrupt(f"{INDEX_NAME} has no weight_map")
    if len(weight_map) > TENSORS_MAX:
        raise ServableCorrupt(f"{INDEX_NAME} names {len(weight_map)} tensors, more than {TENSORS_MAX}")
    for tensor, file in weight_map.items():
        if not isinstance(file, str) or not WEIGHT_FILE.fullmatch(file):
            raise ServableCorrupt(
                f"{INDEX_NAME}: {tensor[:200]!r} is in {str(file)[:200]!r}, not a safetensors file beside it"
            )
    return weight_map


def weight_path(folder: Path, file: str) -> Path:
    """The real path of a weight file. Raises ServableCorrupt when it is missing, BadRequest when it is no file."""
    path = real_file(folder, file)
    if path is None:
        raise ServableCorrupt(f"{file} is missing from {folder}")
    return path


def collect_weights(
    files: Mapping[str, Path], index: bytes | None, header_of: HeaderOf | None = None
) -> dict[str, Weight]:
    """Every tensor by the name it has in the checkpoint. files: name in the checkpoint -> path.

    header_of: reads one file's header; by default from its path. Raises ServableCorrupt for a tensor that is there
    twice, or promised by the index and missing, and what a header is refused for.
    """
    weight_map = _weight_map(index) if index is not None else None
    found: dict[str, Weight] = {}
    seen: dict[str, str] = {}  # tensor -> file
    for file, path in files.items():
        for tensor, span in (header_of(file) if header_of else read_header(path)).items():
            if tensor in seen:  # whichever is taken, another reader would take the other one
                raise ServableCorrupt(f"tensor {tensor[:200]!r} is both in {seen[tensor]} and in {file}")
            seen[tensor] = file
            if weight_map is None or weight_map.get(tensor) == file:
                found[tensor] = Weight(path, file, span)
        if len(seen) > TENSORS_MAX:
            raise ServableCorrupt(f"the checkpoint has more than {TENSORS_MAX} tensors")
    missing = sorted(set(weight_map or ()) - set(found))
    if missing:
        raise ServableCorrupt(
            f"{INDEX_NAME} promises {missing[0][:200]!r} ({len(missing)} in all), which no file holds"
        )
    return found
