"""What a load asks for, in terms of the catalog: whose weights, which adapters. Looks at manifests alone."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import structlog
from swarm_core.errors import BadRequest, ModelNotFound, ServableCorrupt, SwarmError
from swarm_core.manifest import Manifest

from swarm_leader.domain.planning.plan import ALL_ADAPTERS, PlanRequest
from swarm_leader.domain.planning.wanted import AdapterWish
from swarm_leader.domain.ports import Catalog

log = structlog.get_logger()


@dataclass(frozen=True)
class ModelWish:
    """A model as it is to be served. weights: its own manifest, or its base's when it is an adapter.

    request: as asked for, with every adapter named and no more context than the model takes. quantization: its default,
    "" at full precision.
    """

    model_id: str
    weights: Manifest
    weights_sha256: str
    adapters: tuple[AdapterWish, ...]
    request: PlanRequest
    quantization: str = ""

    @property
    def weights_model_id(self) -> str:
        """Whose weights they are, when not the model's own."""
        return "" if self.weights.model_id == self.model_id else self.weights.model_id


def resolve_model(catalog: Catalog, model_id: str, request: PlanRequest) -> ModelWish:
    """Find the weights and the adapters of a load.

    An adapter loaded by its own id is served alone, over its base's weights. Raises ModelNotFound (also of a base or an
    adapter, named), ServableCorrupt, BadRequest (an adapter of another model, or one asked for beside an adapter).
    """
    manifest = catalog.get(model_id)
    if manifest.adapter is not None:
        if request.adapters:
            raise BadRequest(
                f"{model_id} is an adapter itself; load {manifest.adapter.base_model_id} with all of them instead",
                field="adapters",
            )
        weights = _base_of(catalog, manifest)
        adapters: tuple[AdapterWish, ...] = (AdapterWish(manifest, catalog.manifest_sha256(model_id), is_alone=True),)
    else:
        weights = manifest
        adapters = tuple(_adapter(catalog, manifest, one) for one in _adapter_ids(catalog, model_id, request.adapters))
    longest = weights.context_tokens_max
    named = replace(
        request,
        adapters=tuple(adapter.manifest.model_id for adapter in adapters if not adapter.is_alone),
        context_tokens=min(request.context_tokens, longest) if longest else request.context_tokens,
    )
    return ModelWish(
        model_id=model_id,
        weights=weights,
        weights_sha256=catalog.manifest_sha256(weights.model_id),
        adapters=adapters,
        request=named,
        quantization=manifest.quantization or weights.quantization,
    )


def find_adapters(catalog: Catalog, model_id: str, adapter_ids: Sequence[str]) -> tuple[str, ...]:
    """Those of these that the catalog still has for this model; others are logged with what is wrong with them."""
    found = []
    for adapter_id in adapter_ids:
        try:
            _adapter(catalog, catalog.get(model_id), adapter_id)
        except SwarmError as error:
            log.warning("an adapter is left out", model=model_id, adapter=adapter_id, why=error.message)
        else:
            found.append(adapter_id)
    return tuple(found)


def _base_of(catalog: Catalog, adapter: Manifest) -> Manifest:
    """The model an adapter changes. Raises ModelNotFound that says what to import."""
    assert adapter.adapter is not None
    base_model_id = adapter.adapter.base_model_id
    try:
        base = catalog.get(base_model_id)
    except ModelNotFound as error:
        raise ModelNotFound(
            f"{adapter.model_id} is an adapter of {base_model_id}, which is not in the catalog; import that first",
            **{**error.facts, "model": base_model_id},
        ) from error
    _check_made_for(adapter, base)
    return base


def _adapter_ids(catalog: Catalog, model_id: str, asked: tuple[str, ...]) -> list[str]:
    """Every adapter named, once, in the order of their names; ALL_ADAPTERS stands for all of the model's."""
    named = {adapter for adapter in asked if adapter != ALL_ADAPTERS}
    if ALL_ADAPTERS in asked:
        known = catalog.manifests().items()
        named |= {one for one, manifest in known if manifest.adapter and manifest.adapter.base_model_id == model_id}
    return sorted(named)


def _adapter(catalog: Catalog, base: Manifest, adapter_id: str) -> AdapterWish:
    """One adapter to choose from. Raises ModelNotFound, BadRequest when it belongs to another model, or to none."""
    manifest = catalog.get(adapter_id)
    if manifest.adapter is None:
        raise BadRequest(f"{adapter_id} is a whole model, not an adapter of {base.model_id}", field="adapters")
    if manifest.adapter.base_model_id != base.model_id:
        raise BadRequest(
            f"{adapter_id} is an adapter of {manifest.adapter.base_model_id}, not of {base.model_id}", field="adapters"
        )
    _check_made_for(manifest, base)
    return AdapterWish(manifest, catalog.manifest_sha256(adapter_id))


def _check_made_for(adapter: Manifest, base: Manifest) -> None:
    """The base may have been imported anew as another model. Raises ServableCorrupt."""
    if (adapter.layer_count, adapter.hidden_size) != (base.layer_count, base.hidden_size):
        raise ServableCorrupt(
            f"{adapter.model_id} was made for {adapter.layer_count} layers of {adapter.hidden_size}, and its base "
            f"{base.model_id} has {base.layer_count} of {base.hidden_size}"
        )
