"""What /v1 takes and answers, for the gateway's OpenAPI document; from the models that read it. Pure."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from swarm_gateway.openai.chat_completions import request as chat
from swarm_gateway.openai.chat_completions.request import ChatRequest
from swarm_gateway.openai.completions import request as completions
from swarm_gateway.openai.completions.request import CompletionRequest
from swarm_gateway.openai.responses import request as responses
from swarm_gateway.openai.responses.items import CallItem, MessageItem, OutputItem, ReasoningItem
from swarm_gateway.openai.responses.request import ResponsesRequest

Document = dict[str, Any]
PREFIX = "OpenAI."  # so that no schema of the leader's messages has a name of ours
_ITEMS: tuple[type[BaseModel], ...] = (MessageItem, CallItem, OutputItem, ReasoningItem)
# Path, the model that reads it, the "object" of its reply, the words.
_ENDPOINTS: tuple[tuple[str, type[BaseModel], str, str], ...] = (
    ("/v1/chat/completions", ChatRequest, "chat.completion", "A reply to a conversation."),
    ("/v1/completions", CompletionRequest, "text_completion", "What comes after a prompt, without a template."),
    ("/v1/responses", ResponsesRequest, "response", "A reply to items, without anything kept."),
)
_UNSUPPORTED: Mapping[type[BaseModel], Mapping[str, tuple[object, ...]]] = {
    ChatRequest: chat.UNSUPPORTED,
    CompletionRequest: completions.UNSUPPORTED,
    ResponsesRequest: responses.UNSUPPORTED,
}
_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "One generation for each caller and key: asked again, its reply is told again from its beginning.",
    "schema": {"type": "string", "pattern": "^[!-~]([ -~]{0,253}[!-~])?$"},
}
_MODEL_ID = {
    "name": "model",
    "in": "path",
    "required": True,
    "description": "May contain slashes, encoded or not.",
    "schema": {"type": "string", "minLength": 1},
}


def openai_paths() -> Mapping[str, Mapping[str, Any]]:
    """Path -> method -> operation, each with its access class."""
    paths: dict[str, dict[str, Any]] = {endpoint[0]: {"post": _post(*endpoint)} for endpoint in _ENDPOINTS}
    listed = _reply("list", ["data"])
    paths["/v1/models"] = {"get": _get("/v1/models", "Every model that can be asked.", listed)}
    shown = _reply("model", ["id", "created", "owned_by"])
    paths["/v1/models/{model}"] = {"get": _get("/v1/models/{model}", "One model.", shown, [_MODEL_ID])}
    return paths


def openai_schemas() -> Mapping[str, Any]:
    """What the paths refer to, by name below components/schemas."""
    models = [*(model for _, model, _, _ in _ENDPOINTS), *_ITEMS]
    template = f"#/components/schemas/{PREFIX}{{model}}"
    _, made = models_json_schema([(model, "validation") for model in models], ref_template=template)
    schemas: dict[str, Any] = {f"{PREFIX}{name}": schema for name, schema in made["$defs"].items()}
    items = [{"$ref": template.format(model=model.__name__)} for model in _ITEMS]
    text, array = schemas[f"{PREFIX}ResponsesRequest"]["properties"]["input"]["oneOf"]
    schemas[f"{PREFIX}ResponsesRequest"]["properties"]["input"]["oneOf"] = [
        text,
        {**array, "items": {"anyOf": items}},
    ]
    for model, fields in _UNSUPPORTED.items():
        schemas[f"{PREFIX}{model.__name__}"]["properties"] |= {
            name: {"description": "Not supported: only what asks for nothing.", "enum": [None, *neutral]}
            for name, neutral in fields.items()
        }
    return schemas


def _post(path: str, model: type[BaseModel], kind: str, words: str) -> Document:
    body = {"application/json": {"schema": {"$ref": f"#/components/schemas/{PREFIX}{model.__name__}"}}}
    events = {"schema": {"type": "string", "description": "Server-sent events, when stream is true."}}
    content = {"application/json": {"schema": _reply(kind, ["id", "model"])}, "text/event-stream": events}
    return {
        "operationId": _operation_id("post", path),
        "summary": words,
        "x-access": "operate",
        "parameters": [_KEY],
        "requestBody": {"required": True, "content": body},
        "responses": {"200": {"description": "The reply", "content": content}},
    }


def _get(path: str, words: str, schema: Document, parameters: list[Document] | None = None) -> Document:
    return {
        "operationId": _operation_id("get", path),
        "summary": words,
        "x-access": "read",
        "parameters": parameters or [],
        "responses": {"200": {"description": "OK", "content": {"application/json": {"schema": schema}}}},
    }


def _reply(kind: str, required: list[str]) -> Document:
    return {"type": "object", "required": ["object", *required], "properties": {"object": {"const": kind}}}


def _operation_id(method: str, path: str) -> str:
    return "_".join(["openai", method, *(part.strip("{}") for part in path.split("/")[2:])])
