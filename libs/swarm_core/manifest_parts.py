"""The optional parts of servable.json (split, quantization, adapter, origin), trusting nothing in them. Pure."""

import math
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from swarm_core.errors import ServableCorrupt
from swarm_core.manifest_fields import MANIFEST_NAME, count_in, flag_in, text_in
from swarm_core.quantization import METHODS
from swarm_core.servable_parts import (
    CODECS,
    DORA,
    LORA,
    LORA_RANK_MAX,
    VARIANTS,
    AdapterOf,
    HubOrigin,
    TrainingSplit,
)
from swarm_core.tensor_names import LORA_A, LORA_B, LORA_MAGNITUDE, adapted_module, layer_of

SCALE_MAX = 1e6  # of what an adapter adds; those in use are below 100
_FLOATS = {"F64", "F32", "F16", "BF16"}
_TARGETS_MAX = 256
_MODULE = re.compile(r"model\.layers\.[0-9]{1,6}(\.[A-Za-z_][A-Za-z0-9_]{0,63}){1,4}", re.ASCII)
_TARGET = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}", re.ASCII)
_REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,95}/[A-Za-z0-9][A-Za-z0-9_.-]{0,95}", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40,64}", re.ASCII)
_ENDPOINT = re.compile(r"https?://[A-Za-z0-9.:\[\]-]{1,200}(/[A-Za-z0-9._/-]{0,100})?", re.ASCII)


def read_split(part: Any, layer_count: int) -> TrainingSplit | None:
    """Where training cut; null and nothing are a plain checkpoint. Raises ServableCorrupt."""
    if part is None:
        return None
    _check_object(part, "split")
    starts = part.get("layer_starts")
    are_counts = isinstance(starts, list) and all(isinstance(one, int) and not isinstance(one, bool) for one in starts)
    if not are_counts or starts[:1] != [0] or starts != sorted(set(starts)) or starts[-1] >= layer_count:
        raise ServableCorrupt(
            f"{MANIFEST_NAME}: split.layer_starts is {str(starts)[:100]}; they rise from 0, below {layer_count} layers"
        )
    codecs = part.get("codecs") or []
    if not isinstance(codecs, list) or len(codecs) not in (0, len(starts) - 1):
        raise ServableCorrupt(
            f"{MANIFEST_NAME}: split.codecs is {str(codecs)[:100]}, not one for each of {len(starts) - 1} boundaries"
        )
    for codec in codecs:
        if codec not in ("", *CODECS):
            raise ServableCorrupt(
                f"{MANIFEST_NAME}: split.codecs has {str(codec)[:40]!r}, not one of {', '.join(CODECS)}"
            )
    return TrainingSplit(tuple(starts), flag_in(part, "recorded"), tuple(codecs))


def read_quantization(document: Mapping[str, Any]) -> str:
    """How it is loaded by default; "" and nothing are full precision. Raises ServableCorrupt."""
    method = text_in(document, "quantization", default="")
    if method and method not in METHODS:
        raise ServableCorrupt(f"{MANIFEST_NAME}: quantization is {method[:40]!r}, not one of {', '.join(METHODS)}")
    return method


def read_adapter(part: Any) -> AdapterOf | None:
    """What it adapts; null and nothing are a whole model. check_adapter compares it with its tensors.

    Raises ServableCorrupt.
    """
    if part is None:
        return None
    _check_object(part, "adapter")
    targets, scales = part.get("targets"), part.get("scales") or []
    if not isinstance(targets, list) or not 1 <= len(targets) <= _TARGETS_MAX or not all(map(_is_target, targets)):
        raise ServableCorrupt(f"{MANIFEST_NAME}: adapter.targets is {str(targets)[:100]}, not names of modules")
    if not isinstance(scales, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in scales):
        raise ServableCorrupt(f"{MANIFEST_NAME}: adapter.scales is {str(scales)[:100]}, not pairs of module and scale")
    variant = text_in(part, "variant", default=LORA)
    if variant not in VARIANTS:
        raise ServableCorrupt(f"{MANIFEST_NAME}: adapter.variant is {variant[:40]!r}, not one of {', '.join(VARIANTS)}")
    return AdapterOf(
        base_model_id=text_in(part, "base_model_id"),
        rank=count_in(part, "rank", LORA_RANK_MAX),
        targets=tuple(targets),
        scale=_scale(part.get("scale")),
        scales=tuple((_module(module), _scale(scale)) for module, scale in scales),
        variant=variant,
    )


def read_origin(part: Any) -> HubOrigin | None:
    """Where the weights are; null and nothing are the leader's own disk. Raises ServableCorrupt."""
    if part is None:
        return None
    _check_object(part, "origin")
    repository, commit = text_in(part, "repository"), text_in(part, "commit")
    endpoint = text_in(part, "endpoint", default="")
    if not _REPOSITORY.fullmatch(repository) or ".." in repository:
        raise ServableCorrupt(f"{MANIFEST_NAME}: origin.repository is {repository[:100]!r}, not org/name")
    if not _COMMIT.fullmatch(commit):
        raise ServableCorrupt(f"{MANIFEST_NAME}: origin.commit is {commit[:100]!r}, not a commit's hash")
    if endpoint and not is_endpoint(endpoint):
        raise ServableCorrupt(f"{MANIFEST_NAME}: origin.endpoint is {endpoint[:100]!r}, not the address of a hub")
    return HubOrigin(repository, commit, endpoint)


def is_endpoint(address: str) -> bool:
    """Whether this is a plain http or https address: a host, perhaps a port and a path; no user, no query."""
    if not _ENDPOINT.fullmatch(address) or ".." in address:
        return False
    try:
        parts = urlsplit(address)
        return bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is none
        return False


def check_adapter(adapter: AdapterOf, tensors: Mapping[str, tuple[str, tuple[int, ...]]], layer_count: int) -> None:
    """An adapter's tensors (name -> dtype, shape) are whole pairs of plain modules of layers there are.

    Raises ServableCorrupt when one is something else, or rank, targets or scales say otherwise.
    """
    modules: dict[str, dict[str, tuple[int, ...]]] = {}
    for name, (dtype, shape) in tensors.items():
        module, ending = adapted_module(name) or ("", "")
        layer = layer_of(name)
        if not _MODULE.fullmatch(module) or layer is None or layer >= layer_count:
            raise ServableCorrupt(f"tensor {name} is no part of a LoRA adapter of {layer_count} layers")
        if dtype not in _FLOATS:
            raise ServableCorrupt(f"tensor {name} is {dtype}; an adapter's are {', '.join(sorted(_FLOATS))}")
        modules.setdefault(module, {})[ending] = shape
    ranks = {module: _rank(adapter, module, parts) for module, parts in modules.items()}
    if max(ranks.values(), default=0) != adapter.rank:
        raise ServableCorrupt(
            f"{MANIFEST_NAME}: adapter.rank is {adapter.rank}, its tensors' {max(ranks.values(), default=0)}"
        )
    targets = {module.rpartition(".")[2] for module in modules}
    if targets != set(adapter.targets):
        raise ServableCorrupt(f"{MANIFEST_NAME}: adapter.targets are not the modules there are, {sorted(targets)[:8]}")
    others = [module for module, _ in adapter.scales if module not in modules]
    if others or len({module for module, _ in adapter.scales}) != len(adapter.scales):
        raise ServableCorrupt(f"{MANIFEST_NAME}: adapter.scales names a module twice or one without tensors")


def _rank(adapter: AdapterOf, module: str, parts: Mapping[str, tuple[int, ...]]) -> int:
    """The rank of one module's pair."""
    a, b = parts.get(LORA_A), parts.get(LORA_B)
    if a is None or b is None:
        raise ServableCorrupt(f"module {module} has no whole pair of {LORA_A[1:]} and {LORA_B[1:]}")
    if len(a) != 2 or len(b) != 2 or a[0] != b[1] or not 1 <= a[0] <= LORA_RANK_MAX:
        raise ServableCorrupt(
            f"module {module} has A {list(a)} and B {list(b)}; [rank, inputs] and [outputs, rank] up to {LORA_RANK_MAX}"
        )
    magnitude = parts.get(LORA_MAGNITUDE)
    expected = (b[0],) if adapter.variant == DORA else None
    if magnitude != expected:
        raise ServableCorrupt(f"module {module} has magnitudes {magnitude}; a {adapter.variant} has {expected}")
    return a[0]


def _check_object(part: Any, name: str) -> None:
    if not isinstance(part, dict):
        raise ServableCorrupt(f"{MANIFEST_NAME}: {name} is {str(part)[:40]!r}, not an object")


def _is_target(target: Any) -> bool:
    return isinstance(target, str) and _TARGET.fullmatch(target) is not None


def _module(module: Any) -> str:
    if not isinstance(module, str) or not _MODULE.fullmatch(module):
        raise ServableCorrupt(f"{MANIFEST_NAME}: adapter.scales has {str(module)[:100]!r}, no module of a layer")
    return module


def _scale(scale: Any) -> float:
    is_number = isinstance(scale, int | float) and not isinstance(scale, bool)
    if not is_number or not math.isfinite(scale) or abs(scale) > SCALE_MAX:
        raise ServableCorrupt(f"{MANIFEST_NAME}: adapter.scale is {str(scale)[:40]}, not a number up to {SCALE_MAX:g}")
    return float(scale)
