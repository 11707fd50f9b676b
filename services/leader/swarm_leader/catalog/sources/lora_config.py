"""adapter_config.json of a LoRA adapter: what of it is served, and what B A is multiplied by. Pure; runs no pattern."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from swarm_core.errors import BadRequest, ServableCorrupt
from swarm_core.json_bounds import read_json_object
from swarm_core.manifest import CONFIG_BYTES_MAX
from swarm_core.manifest_parts import SCALE_MAX
from swarm_core.servable_parts import ADAPTER_CONFIG_NAME, DORA, LORA, LORA_RANK_MAX

from swarm_leader.catalog.sources.config_json import check_no_own_code

_PATTERNS_MAX = 20_000
_TEXT_CHARACTERS_MAX = 500
_LITERAL = re.compile(r"[A-Za-z0-9_]{1,64}(\.[A-Za-z0-9_]{1,64}){0,15}", re.ASCII)
# Each changes what is computed in a way a stage does not follow. Empty, false and null switch them off.
_NOT_SERVED = (
    "modules_to_save",
    "trainable_token_indices",
    "target_parameters",
    "layer_replication",
    "alora_invocation_tokens",
    "arrow_config",
    "lora_bias",
    "use_qalora",
    "use_bdlora",
    "kasa_config",
    "velora_config",
    "monteclora_config",
    "lora_ga_config",
)
# Other ways to begin (PiSSA, OLoRA, CorDA, LoftQ ...) change the base's own weights, which the adapter does not carry.
_PLAIN_STARTS = (None, True, False, "gaussian", "eva", "orthogonal")


@dataclass(frozen=True)
class LoraConfig:
    """What training said. ranks, alphas: (end of a module's path, its own value), the first that fits counts."""

    base_name: str
    rank: int
    alpha: float
    is_rslora: bool = False
    variant: str = LORA
    ranks: tuple[tuple[str, int], ...] = ()
    alphas: tuple[tuple[str, float], ...] = ()

    def rank_of(self, module: str) -> int:
        """The rank of one module ("model.layers.3.self_attn.q_proj")."""
        return next((rank for end, rank in self.ranks if _ends_in(module, end)), self.rank)

    def alpha_of(self, module: str) -> float:
        """lora_alpha of one module."""
        return next((alpha for end, alpha in self.alphas if _ends_in(module, end)), self.alpha)

    def scale_of(self, module: str) -> float:
        """What B A of one module is multiplied by."""
        rank = self.rank_of(module)
        return self.alpha_of(module) / (math.sqrt(rank) if self.is_rslora else rank)


def parse_lora_config(raw: bytes) -> LoraConfig:
    """Read adapter_config.json.

    Raises BadRequest for what is not served, by the key's name, and ServableCorrupt for what cannot be.
    """
    document = read_json_object(raw, ADAPTER_CONFIG_NAME, CONFIG_BYTES_MAX)
    _check_served(document)
    patterns = {key: _pattern(document, key) for key in ("rank_pattern", "alpha_pattern")}
    return LoraConfig(
        base_name=_text(document, "base_model_name_or_path"),
        rank=_rank(document.get("r"), "r"),
        alpha=_number(document.get("lora_alpha"), "lora_alpha"),
        is_rslora=_flag(document, "use_rslora"),
        variant=DORA if _flag(document, "use_dora") else LORA,
        ranks=tuple((end, _rank(rank, "rank_pattern")) for end, rank in patterns["rank_pattern"].items()),
        alphas=tuple((end, _number(alpha, "alpha_pattern")) for end, alpha in patterns["alpha_pattern"].items()),
    )


def published_config(config: LoraConfig, base_model_id: str, modules: Mapping[str, int]) -> dict[str, Any]:
    """The adapter_config.json stages get: what was understood and nothing else. modules: path -> rank.

    Patterns name whole module paths, so that no reader has to run one.
    """
    own_alphas = {module: alpha for module in modules if (alpha := config.alpha_of(module)) != config.alpha}
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base_model_id,
        "bias": "none",
        "r": config.rank,
        "lora_alpha": config.alpha,
        "use_rslora": config.is_rslora,
        "use_dora": config.variant == DORA,
        "rank_pattern": {module: rank for module, rank in modules.items() if rank != config.rank},
        "alpha_pattern": own_alphas,
        "target_modules": sorted({module.rpartition(".")[2] for module in modules}),
    }


def _check_served(document: Mapping[str, Any]) -> None:
    check_no_own_code(dict(document), ADAPTER_CONFIG_NAME)
    kind = document.get("peft_type")
    if not isinstance(kind, str) or kind.upper() != "LORA":
        raise BadRequest(f"the adapter is a {str(kind)[:40]!r}; LORA is served", field="source")
    for key in _NOT_SERVED:
        if document.get(key):
            raise BadRequest(f"{ADAPTER_CONFIG_NAME} sets {key}, which is not served", field="source", key=key)
    if document.get("bias", "none") != "none":
        raise BadRequest(
            f"{ADAPTER_CONFIG_NAME} sets bias {str(document['bias'])[:40]!r}: trained biases are not served",
            field="source",
            key="bias",
        )
    start = document.get("init_lora_weights")
    if not isinstance(start, str | bool | None) or start not in _PLAIN_STARTS:
        raise BadRequest(
            f"{ADAPTER_CONFIG_NAME} sets init_lora_weights {str(start)[:40]!r}, which changes the base's own weights; "
            "save it as an ordinary LoRA adapter (path_initial_model_for_weight_conversion)",
            field="source",
            key="init_lora_weights",
        )


def _pattern(document: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Ends of module paths -> a value. A regular expression is refused: it is read, never run."""
    pattern = document.get(key) or {}
    if not isinstance(pattern, dict) or len(pattern) > _PATTERNS_MAX:
        raise ServableCorrupt(f"{ADAPTER_CONFIG_NAME}: {key} is no object of at most {_PATTERNS_MAX} modules")
    for end in pattern:
        if not _LITERAL.fullmatch(end):
            raise BadRequest(
                f"{ADAPTER_CONFIG_NAME}: {key} has {end[:60]!r}, which is not the end of a module's path; patterns are "
                "not run",
                field="source",
                key=key,
            )
    return pattern


def _ends_in(module: str, end: str) -> bool:
    return module == end or module.endswith(f".{end}")


def _rank(rank: Any, key: str) -> int:
    if not isinstance(rank, int) or isinstance(rank, bool) or not 1 <= rank <= LORA_RANK_MAX:
        raise BadRequest(
            f"{ADAPTER_CONFIG_NAME}: {key} is {str(rank)[:40]}, not a rank from 1 to {LORA_RANK_MAX}", field="source"
        )
    return rank


def _number(number: Any, key: str) -> float:
    is_number = isinstance(number, int | float) and not isinstance(number, bool)
    if not is_number or not abs(number) <= SCALE_MAX:  # NaN is not
        raise ServableCorrupt(f"{ADAPTER_CONFIG_NAME}: {key} is {str(number)[:40]}, not a number up to {SCALE_MAX:g}")
    return float(number)


def _flag(document: Mapping[str, Any], key: str) -> bool:
    flag = document.get(key) or False
    if not isinstance(flag, bool):
        raise ServableCorrupt(f"{ADAPTER_CONFIG_NAME}: {key} is {str(flag)[:40]}, neither true nor false")
    return flag


def _text(document: Mapping[str, Any], key: str) -> str:
    text = document.get(key) or ""
    if not isinstance(text, str) or len(text) > _TEXT_CHARACTERS_MAX:
        raise ServableCorrupt(f"{ADAPTER_CONFIG_NAME}: {key} is {str(text)[:40]!r}, not a name")
    return text
