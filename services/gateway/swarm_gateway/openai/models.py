"""GET /v1/models and /v1/models/{id}: what can be asked for. Damaged models are not listed; /api/v1/models has them."""

from collections.abc import Mapping
from urllib.parse import unquote

from aiohttp import web
from silentswarm.leader.v1 import models_pb2, serving_pb2
from swarm_core.errors import ServableCorrupt

from swarm_gateway.config import GatewayConfig
from swarm_gateway.leader import Leader
from swarm_gateway.openai.replies.asked import Document
from swarm_gateway.problems import json_response

_MODELS = models_pb2.DESCRIPTOR.services_by_name["Models"].methods_by_name
_LIST_SERVING = serving_pb2.DESCRIPTOR.services_by_name["Serving"].methods_by_name["ListServing"]
_SERVED = {
    serving_pb2.PLACEMENT_STATE_LOADING,
    serving_pb2.PLACEMENT_STATE_WIRING,
    serving_pb2.PLACEMENT_STATE_READY,
    serving_pb2.PLACEMENT_STATE_IDLE,  # the next request loads it again as it was
    serving_pb2.PLACEMENT_STATE_RECOVERING,
}


class ModelHandlers:
    """The catalog in OpenAI's shape."""

    def __init__(self, config: GatewayConfig, leader: Leader) -> None:
        self._timeout_s = config.api_timeout_s
        self._leader = leader

    async def list(self, request: web.Request, raw_variables: Mapping[str, str]) -> web.Response:
        """Every model that can be served, loaded or not."""
        answer = await self._leader.call(_MODELS["ListModels"], models_pb2.ListModelsRequest(), self._timeout_s)
        served = await self._served_contexts()
        models = [model_document(model, served.get(model.model_id, 0)) for model in answer.models if not model.broken]
        return json_response({"object": "list", "data": models})

    async def show(self, request: web.Request, raw_variables: Mapping[str, str]) -> web.Response:
        """One model; its id may contain slashes, encoded or not."""
        order = models_pb2.GetModelRequest(model_id=unquote(raw_variables["model"]))
        model = await self._leader.call(_MODELS["GetModel"], order, self._timeout_s)
        if model.broken:
            raise ServableCorrupt(f"model {model.model_id!r} cannot be served: {model.broken}")
        served = await self._served_contexts()
        return json_response(model_document(model, served.get(model.model_id, 0)))

    async def _served_contexts(self) -> dict[str, int]:
        """Model id -> the longest conversation it takes now, tokens; only models that are served. No disk is read.

        An adapter takes what the base takes that holds it.
        """
        answer = await self._leader.call(_LIST_SERVING, serving_pb2.ListServingRequest(), self._timeout_s)
        served = [model for model in answer.models if model.state in _SERVED]
        held = {adapter: model.context_tokens for model in served for adapter in model.adapters}
        return held | {model.model_id: model.context_tokens for model in served}


def model_document(model: models_pb2.Model, served_tokens: int = 0) -> Document:
    """One model of the list. served_tokens: the context it is served with, 0 when it is not.

    max_model_len: that, else the most the model takes, in tokens; absent when the model does not say. An adapter has
    parent, the id of its base, and root, where it was published, as vLLM lists LoRA modules; one that was imported from
    a folder has its own id there: where things lie on the leader's disk is nobody's business.
    """
    document: Document = {
        "id": model.model_id,
        "object": "model",
        "created": model.created_s,
        "owned_by": "silentswarm",
        "swarm": {"state": model.state},
    }
    if served_tokens or model.context_tokens_max:
        document["max_model_len"] = served_tokens or model.context_tokens_max
    if model.HasField("adapter"):
        is_path = model.source.startswith(("/", "."))
        document["root"] = model.model_id if is_path or not model.source else model.source
        document["parent"] = model.adapter.base_model_id
    return document
