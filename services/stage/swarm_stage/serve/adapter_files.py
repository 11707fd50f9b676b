"""The adapters of a load request, as the slice is built from them. Reads no file."""

from pathlib import Path

from silentswarm.core.v1 import weights_pb2
from silentswarm.stage.v1 import stage_pb2 as stage_rpc
from swarm_core.errors import BadRequest

from swarm_stage.model.adapters.adapter import ALWAYS, CHOSEN, MERGED
from swarm_stage.model.holding import AdapterSource

_USES = {
    weights_pb2.ADAPTER_USE_UNSPECIFIED: CHOSEN,
    weights_pb2.ADAPTER_USE_CHOSEN: CHOSEN,
    weights_pb2.ADAPTER_USE_ALWAYS: ALWAYS,
    weights_pb2.ADAPTER_USE_MERGED: MERGED,
}


def adapters_of(request: stage_rpc.LoadRequest) -> tuple[AdapterSource, ...]:
    """The adapters of the spec with their files, in its order, which all stages share.

    Raises BadRequest when the files are not those of the spec, or a way to use one is not known.
    """
    planned = [adapter.model_id for adapter in request.spec.adapters]
    given = [files.model_id for files in request.adapters]
    if planned != given:
        raise BadRequest(f"files of adapters {given} were given where the spec has {planned}", field="adapters")
    unknown = [adapter.use for adapter in request.spec.adapters if adapter.use not in _USES]
    if unknown:
        raise BadRequest(f"adapters cannot be used in way {unknown[0]}; this stage is too old for it", field="adapters")
    return tuple(
        AdapterSource(files.model_id, _USES[adapter.use], Path(files.model_dir), dict(files.tensor_files))
        for adapter, files in zip(request.spec.adapters, request.adapters, strict=True)
    )
