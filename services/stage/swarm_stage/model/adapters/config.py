"""What adapter_config.json says of a LoRA adapter, trusted in nothing. Reads no tensor."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swarm_core.errors import CapabilityMissing, ServableCorrupt
from swarm_core.json_bounds import read_json_object
from swarm_core.servable_parts import ADAPTER_CONFIG_NAME, DORA, LORA, LORA_RANK_MAX

CONFIG_BYTES_MAX = 2**20
# What would change more than linear layers, or change them in another way; with the values that ask for nothing.
_REFUSED: Mapping[str, tuple[Any, ...]] = {
    "fan_in_fan_out": (False,),
    "bias": ("none",),
    "lora_bias": (False,),
    "modules_to_save": ([],),
    "trainable_token_indices": ([], {}),
    "target_parameters": ([],),
    "layer_replication": ([],),
    "alora_invocation_tokens": ([],),
    "use_qalora": (False,),
    "use_bdlora": (False,),
    "arrow_config": (),
    # Ways to begin training that leave the base as it is; the others are trained beside a base they changed.
    "init_lora_weights": (True, False, "gaussian", "eva", "orthogonal"),
}
_PATTERN = re.compile(r"\^?(?:[A-Za-z0-9_]|\\?\.){1,200}\$?", re.ASCII)


@dataclass(frozen=True)
class AdapterConfig:
    """How strongly an adapter acts. ranks, alphas: (module pattern, value) of modules that differ, first match first.

    variant: LORA, or DORA, which only peft computes.
    """

    rank: int
    alpha: float
    uses_rslora: bool
    ranks: tuple[tuple[str, float], ...]
    alphas: tuple[tuple[str, float], ...]
    variant: str

    def rank_of(self, module: str) -> int:
        """Rank of what is added to a module ("model.layers.3.self_attn.q_proj")."""
        return int(_first_match(self.ranks, module, self.rank))

    def alpha_of(self, module: str) -> float:
        """The numerator of the module's scale."""
        return _first_match(self.alphas, module, self.alpha)

    def scale_of(self, module: str) -> float:
        """What B A is multiplied by."""
        rank = self.rank_of(module)
        return self.alpha_of(module) / (math.sqrt(rank) if self.uses_rslora else rank)


def read_adapter_config(model_dir: Path) -> AdapterConfig:
    """Read the file. Raises ServableCorrupt when it is broken, CapabilityMissing naming what is not served."""
    try:
        with (model_dir / ADAPTER_CONFIG_NAME).open("rb") as file:
            raw = file.read(CONFIG_BYTES_MAX + 1)
    except OSError as error:
        raise ServableCorrupt(f"{ADAPTER_CONFIG_NAME} of this adapter cannot be read: {error}") from error
    return adapter_config(read_json_object(raw, f"{ADAPTER_CONFIG_NAME} of this adapter", CONFIG_BYTES_MAX))


def adapter_config(document: Mapping[str, Any]) -> AdapterConfig:
    """The parsed file as facts. Raises as read_adapter_config does."""
    kind = document.get("peft_type")
    if kind != "LORA":
        raise CapabilityMissing(f"adapters of type {str(kind)[:40]!r} are not served; only LORA", peft_type=kind)
    for name, harmless in _REFUSED.items():
        value = document.get(name)
        # By type too: 1 == True, and an initialisation called 1 is none that is known.
        if value is not None and not any(type(value) is type(good) and value == good for good in harmless):
            raise CapabilityMissing(f"adapters with {name} = {str(value)[:60]} are not served", field=name)
    return AdapterConfig(
        rank=_rank("r", document.get("r")),
        alpha=_number("lora_alpha", document.get("lora_alpha")),
        uses_rslora=bool(document.get("use_rslora")),
        ranks=tuple(_patterns(document, "rank_pattern", _rank)),
        alphas=tuple(_patterns(document, "alpha_pattern", _number)),
        variant=DORA if document.get("use_dora") else LORA,
    )


def _patterns(document: Mapping[str, Any], name: str, read: Any) -> list[tuple[str, float]]:
    """(pattern, value), in the file's order."""
    patterns = document.get(name) or {}
    if not isinstance(patterns, dict):
        raise ServableCorrupt(f"{ADAPTER_CONFIG_NAME}: {name} is no object")
    for pattern in patterns:
        # peft takes any regular expression, and some of those never end.
        if not _PATTERN.fullmatch(pattern):
            raise CapabilityMissing(
                f"{ADAPTER_CONFIG_NAME}: {name} has {pattern[:80]!r}; only names of modules are served", field=name
            )
    return [(pattern, read(f"{name} of {pattern[:80]}", value)) for pattern, value in patterns.items()]


def _first_match(patterns: tuple[tuple[str, float], ...], module: str, default: float) -> float:
    """As peft chooses: the first whose pattern is the module's name or ends it, at a dot."""
    for pattern, value in patterns:
        is_whole = pattern.startswith("^")
        name = pattern.removeprefix("^").removesuffix("$").replace("\\.", ".")
        if module == name or (not is_whole and module.endswith(f".{name}")):
            return value
    return default


def _rank(name: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= LORA_RANK_MAX:
        raise ServableCorrupt(
            f"{ADAPTER_CONFIG_NAME}: {name} is {str(value)[:40]}, not a rank from 1 to {LORA_RANK_MAX}"
        )
    return value


def _number(name: str, value: Any) -> float:
    try:
        number = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ServableCorrupt(f"{ADAPTER_CONFIG_NAME}: {name} is {str(value)[:40]}, not a finite number")
    return number
