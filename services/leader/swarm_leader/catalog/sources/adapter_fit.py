"""Whether a LoRA adapter fits the model it says it is for. Pure: shapes only."""

from collections.abc import Mapping

from swarm_core.manifest import Manifest
from swarm_core.servable_parts import DORA, LORA_RANK_MAX
from swarm_core.tensor_names import LORA_A, LORA_B, LORA_MAGNITUDE, adapted_module, layer_of

Shape = tuple[int, ...]


def modules_of(shapes: Mapping[str, Shape]) -> dict[str, dict[str, Shape]]:
    """The tensors of an adapter by module path and ending; names that are no adapter's are left out."""
    modules: dict[str, dict[str, Shape]] = {}
    for name, shape in shapes.items():
        found = adapted_module(name)
        if found is not None:
            modules.setdefault(found[0], {})[found[1]] = shape
    return modules


def why_module_unfit(module: str, shapes: Mapping[str, Shape], variant: str, base: Manifest) -> str:
    """Why the tensors of one module do not fit the base's; "" when they do."""
    if layer_of(f"{module}.") is None:
        return f"{module} is outside the layers; adapters of that are not served"
    adapted = base.tensors.get(f"{module}.weight")
    if adapted is None or len(adapted.shape) != 2:
        return f"{module} is not a linear layer of {base.model_id}"
    a, b = shapes.get(LORA_A), shapes.get(LORA_B)
    if not a or not b:
        return f"{module} has no whole pair of lora_A and lora_B"
    rank, (outputs, inputs) = a[0], adapted.shape
    if a != (rank, inputs) or b != (outputs, rank) or not 1 <= rank <= LORA_RANK_MAX:
        return (
            f"{module}: A is {list(a)} and B {list(b)}; of {base.model_id} they are [rank, {inputs}] and "
            f"[{outputs}, rank], of a rank up to {LORA_RANK_MAX}"
        )
    magnitudes = shapes.get(LORA_MAGNITUDE)
    if magnitudes != ((outputs,) if variant == DORA else None):
        return f"{module} has magnitudes {magnitudes}, which a {variant} of {outputs} outputs does not have"
    return ""


def why_unfit(adapter: Manifest, base: Manifest) -> str:
    """Why an adapter of the catalog cannot be served over its base; "" when it can."""
    assert adapter.adapter is not None
    if base.adapter is not None:
        return f"its base {base.model_id} is an adapter itself"
    if base.layer_count != adapter.layer_count:
        return f"its base {base.model_id} has {base.layer_count} layers, it was made for {adapter.layer_count}"
    shapes = {name: entry.shape for name, entry in adapter.tensors.items()}
    for module, parts in modules_of(shapes).items():
        why = why_module_unfit(module, parts, adapter.adapter.variant, base)
        if why:
            return f"it does not fit its base: {why}"
    return ""
