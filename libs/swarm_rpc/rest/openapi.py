"""The OpenAPI 3.1 document of the JSON routes, from the same descriptors that serve them. Pure."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from silentswarm.core.v1 import access_pb2

from swarm_rpc.rest.fields import find_field, fits_a_query, is_map
from swarm_rpc.rest.routes import Route
from swarm_rpc.rest.schemas import Schema, message_schemas, reference, schema_of
from swarm_rpc.rest.template import MANY

_PATTERN = re.compile(r"=[^{}]+\}")
_DEPTH_MAX = 3  # how deep "a.b.c" query parameters are listed; deeper ones are still read
_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
                "metadata": {"type": "object", "additionalProperties": {"type": "string"}},
            },
        }
    },
}


_BEARER = "bearer"
# Refusals any operation may answer with; those of a token only where one is asked for.
_ALWAYS = {
    "400": "The request is wrong; param names where. Sent again it fails again.",
    "404": "Nothing of that name.",
    "409": "The request is sound; the state of the fleet or of the model stands in its way.",
    "413": "The body is larger than the gateway or the leader takes.",
    "429": "Too much is in work; Retry-After says when to come back.",
    "503": "Not ready, or the leader is away; Retry-After says when to come back.",
    "504": "The leader did not finish in time.",
}
_OF_TOKENS = {
    "401": "A token is asked for and this is none: missing, unknown, expired or revoked.",
    "403": "The token lacks the scope, or the page or host name is not allowed.",
}


def openapi_document(
    routes: Iterable[Route],
    title: str,
    version: str,
    more_paths: Mapping[str, Mapping[str, Any]] | None = None,
    more_schemas: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The whole document, ready for json.dumps. Server streams are listed as text/event-stream of their message.

    more_paths: what is served besides the routes, path -> method -> operation; an operation that names an access class
    ("x-access") gets the refusals of all. more_schemas: what they refer to below components/schemas.
    Raises ValueError when a path or a schema is there already.
    """
    paths: dict[str, dict[str, Any]] = {}
    messages: list[Descriptor] = []
    operation_ids: set[str] = set()
    for route in routes:
        path = _PATTERN.sub("}", route.template.text)
        operation = _operation(route)
        while operation["operationId"] in operation_ids:
            operation["operationId"] += "_"  # an additional binding of the same RPC
        operation_ids.add(operation["operationId"])
        paths.setdefault(path, {})[route.http_method.lower()] = operation
        messages += (route.method.input_type, route.method.output_type)
    schemas = {"Error": _ERROR, **message_schemas(messages)}
    _add(
        paths,
        {path: {key: _refusable(value) for key, value in item.items()} for path, item in (more_paths or {}).items()},
    )
    _add(schemas, more_schemas or {})
    scheme = {"type": "http", "scheme": "bearer", "description": "An API token; asked for once one was made."}
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": version},
        "security": [{_BEARER: []}],
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": dict(sorted(schemas.items())),
            "responses": {f"Refused{status}": _error(words) for status, words in (_ALWAYS | _OF_TOKENS).items()},
            "securitySchemes": {_BEARER: scheme},
        },
    }


def _add(known: dict[str, Any], more: Mapping[str, Any]) -> None:
    if both := known.keys() & more.keys():
        raise ValueError(f"described twice: {', '.join(sorted(both))}")
    known.update(more)


def _refusable(operation: dict[str, Any]) -> dict[str, Any]:
    """The operation with what it may be refused with, when it names its access class."""
    access = operation.get("x-access") if isinstance(operation, dict) else None
    if access is None:
        return operation
    refusals = _ALWAYS if access == "public" else dict(sorted((_ALWAYS | _OF_TOKENS).items()))
    references = {status: {"$ref": f"#/components/responses/Refused{status}"} for status in refusals}
    said = {**operation, "responses": {**references, **operation["responses"]}}
    return {**said, "security": []} if access == "public" else said


def _error(words: str) -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/Error"}
    return {"description": words, "content": {"application/json": {"schema": schema}}}


def _operation(route: Route) -> dict[str, Any]:
    media = "text/event-stream" if route.streams else "application/json"
    operation: dict[str, Any] = {
        "operationId": f"{route.method.containing_service.name}_{route.method.name}",
        "tags": [route.method.containing_service.name],
        "x-access": access_pb2.Access.Name(route.access).removeprefix("ACCESS_").lower(),
        "parameters": [*_path_parameters(route), *_query_parameters(route)],
        "responses": {
            "200": {"description": "OK", "content": {media: {"schema": reference(route.method.output_type)}}},
            "default": _error("An error"),
        },
    }
    if route.body:
        operation["requestBody"] = {"content": {"application/json": {"schema": _body_schema(route)}}}
    return _refusable(operation)


def _body_schema(route: Route) -> Schema:
    request = route.method.input_type
    return reference(request) if route.body == "*" else schema_of(request.fields_by_name[route.body])


def _path_parameters(route: Route) -> Iterator[dict[str, Any]]:
    for variable in route.template.variables:
        field = find_field(route.method.input_type, variable.field_path)
        assert field is not None  # routes_of checked the annotation
        parameter = {"name": variable.field_path, "in": "path", "required": True, "schema": schema_of(field)}
        if MANY in route.template.segments[variable.start : variable.stop]:
            parameter["description"] = "May contain slashes, as they are or as %2F."
        yield parameter


def _query_parameters(route: Route) -> Iterator[dict[str, Any]]:
    if route.body == "*":
        return
    taken = {variable.field_path for variable in route.template.variables} | {route.body}
    for field_path, field in _query_fields(route.method.input_type, "", _DEPTH_MAX):
        if field_path not in taken and field_path.split(".")[0] not in taken:
            yield {"name": field_path, "in": "query", "schema": schema_of(field)}


def _query_fields(message: Descriptor, prefix: str, depth: int) -> Iterator[tuple[str, FieldDescriptor]]:
    for field in message.fields:
        if fits_a_query(field):
            yield prefix + field.name, field
        elif depth > 1 and not field.is_repeated and not is_map(field):
            yield from _query_fields(field.message_type, f"{prefix}{field.name}.", depth - 1)
