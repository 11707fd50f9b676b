"""A model of the catalog as clients see it. Pure."""

from collections.abc import Mapping
from itertools import pairwise

from silentswarm.core.v1 import weights_pb2
from silentswarm.leader.v1 import models_pb2
from swarm_core.manifest import Manifest
from swarm_core.servable_parts import HubOrigin, TrainingSplit
from swarm_core.tensor_names import FINAL_NORM, HEAD, layer_of

from swarm_leader.domain.held import price_weights

_HUB = "https://huggingface.co"


def model_to_proto(manifest: Manifest, models: Mapping[str, Manifest], state: str) -> models_pb2.Model:
    """One model. models: all there are, for its adapters. state: where its serving stands."""
    model = models_pb2.Model(
        model_id=manifest.model_id,
        model_type=manifest.model_type,
        layer_count=manifest.layer_count,
        parameter_count=manifest.parameter_count,
        weight_bytes=manifest.weight_bytes,
        context_tokens_max=manifest.context_tokens_max,
        created_s=manifest.created_s,
        source=manifest.source,
        state=state,
        adapters=adapters_of(manifest.model_id, models),
        held=[
            models_pb2.HeldBytes(quantization=method, weight_bytes=held)
            for method, held in price_weights(manifest).items()
        ],
        weights_from=_address(manifest.origin) if manifest.origin is not None else "",
    )
    if manifest.quantization:
        model.quantization.CopyFrom(weights_pb2.Quantization(method=manifest.quantization))
    if manifest.split is not None:
        model.split.CopyFrom(_split(manifest, manifest.split))
    if manifest.adapter is not None:
        adapter = manifest.adapter
        model.adapter.CopyFrom(
            models_pb2.Adapter(base_model_id=adapter.base_model_id, rank=adapter.rank, targets=adapter.targets)
        )
    return model


def adapters_of(model_id: str, models: Mapping[str, Manifest]) -> list[str]:
    """Adapters of a model, by id."""
    return sorted(
        other_id
        for other_id, other in models.items()
        if other.adapter is not None and other.adapter.base_model_id == model_id
    )


def _split(manifest: Manifest, split: TrainingSplit) -> models_pb2.TrainingSplit:
    cuts = list(pairwise((*split.layer_starts, manifest.layer_count)))
    bytes_of = [0] * len(cuts)
    for name, entry in manifest.tensors.items():
        layer = layer_of(name)
        if layer is not None:
            stage = next(place for place, (start, stop) in enumerate(cuts) if start <= layer < stop)
        else:
            stage = len(cuts) - 1 if name in (FINAL_NORM, HEAD) else 0
        bytes_of[stage] += entry.size_bytes
    return models_pb2.TrainingSplit(
        stage_count=split.stage_count,
        recorded=split.recorded,
        shards=[
            models_pb2.Shard(
                layer_start=start, layer_stop=stop, weight_bytes=size_bytes, codec_out=split.codec_before(stop)
            )
            for (start, stop), size_bytes in zip(cuts, bytes_of, strict=True)
        ],
    )


def _address(origin: HubOrigin) -> str:
    return f"{origin.endpoint or _HUB}/{origin.repository}/tree/{origin.commit}"
