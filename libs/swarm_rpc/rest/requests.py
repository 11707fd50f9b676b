"""Path variables, query and body -> the request message of a route. Pure; every refusal names the field."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import unquote_to_bytes

from google.protobuf import json_format, message_factory
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message
from swarm_core.errors import BadRequest

from swarm_rpc.rest.fields import find_field, fits_a_query, value_of
from swarm_rpc.rest.routes import Route

BODY_BYTES_MAX = 4 * 2**20  # a request travels on as one control message
_FIELD_IN_WORDS = re.compile(r'no field named "([^"]+)"|parse (\S+) field')


def build_request(
    route: Route,
    raw_variables: Mapping[str, str],
    query: Iterable[tuple[str, str]] = (),
    body: bytes = b"",
    body_bytes_max: int = BODY_BYTES_MAX,
) -> Message:
    """The message to call `route.method` with.

    raw_variables: still percent-encoded, as the table found them. query: decoded pairs in order. body: JSON as proto3
    writes it (64-bit numbers may be strings), at most body_bytes_max bytes; empty is an empty object; ignored by a
    route without a body. A path variable may be repeated in the body, not contradicted.
    Raises BadRequest naming the field.
    """
    request = route.method.input_type
    document: dict[str, Any] = {}
    if route.body:
        document = _body_document(route, body, body_bytes_max)
    taken: set[str] = set()
    for field_path, raw in raw_variables.items():
        _put_variable(request, document, field_path, _decode(field_path, raw))
        taken.add(field_path)
    _put_query(route, document, query, taken)
    message = message_factory.GetMessageClass(request)()
    try:
        json_format.ParseDict(document, message, ignore_unknown_fields=False)
    except (json_format.ParseError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise _not_a_request(request, error) from None
    return message


def parse_json(body: bytes) -> Any:
    """Strict JSON: UTF-8, no NaN or Infinity, no numbers beyond what a double or 4,300 digits hold.

    Raises BadRequest with field "body".
    """
    try:
        return json.loads(body.decode("utf-8"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the body is not valid JSON: {error}", field="body") from None


def _body_document(route: Route, body: bytes, body_bytes_max: int) -> dict[str, Any]:
    if len(body) > body_bytes_max:
        raise BadRequest(f"the body has {len(body)} bytes, at most {body_bytes_max} are read", field="body")
    document = parse_json(body) if body.strip() else {}
    if route.body != "*":
        return {route.body: document}
    if not isinstance(document, dict):
        raise BadRequest("the body must be a JSON object", field="body")
    return document


def _decode(field_path: str, raw: str) -> str:
    try:
        return unquote_to_bytes(raw).decode("utf-8")
    except UnicodeDecodeError:
        raise BadRequest(f"{field_path} in the path is not UTF-8", field=field_path) from None


def _put_variable(request: Descriptor, document: dict[str, Any], field_path: str, text: str) -> None:
    field = find_field(request, field_path)
    assert field is not None  # routes_of checked the annotation
    value = value_of(field, field_path, text)
    parent = _parent(document, field_path)
    for name in (field.name, field.camelcase_name):
        if name in parent and parent.pop(name) != value:
            raise BadRequest(f"{field_path} is {value!r} in the path and something else in the body", field=field_path)
    parent[field.name] = value


def _put_query(route: Route, document: dict[str, Any], query: Iterable[tuple[str, str]], taken: set[str]) -> None:
    seen: set[str] = set()
    for name, text in query:
        if route.body == "*":
            raise BadRequest(f"{name}: query parameters are not read here; put it into the JSON body", field=name)
        field = find_field(route.method.input_type, name)
        if field is None or not fits_a_query(field) or _root(name) == route.body:
            raise BadRequest(f"no query parameter {name!r}", field=name)
        proto_name = ".".join((*name.split(".")[:-1], field.name))
        if proto_name in taken:
            raise BadRequest(f"{name} is part of the path already", field=name)
        parent = _parent(document, proto_name)
        if field.is_repeated:
            parent.setdefault(field.name, []).append(value_of(field, name, text))
            continue
        if proto_name in seen:
            raise BadRequest(f"{name} is given twice", field=name)
        seen.add(proto_name)
        parent[field.name] = value_of(field, name, text)


def _parent(document: dict[str, Any], field_path: str) -> dict[str, Any]:
    """The object that holds the last name of "a.b.c", made where it is missing."""
    for name in field_path.split(".")[:-1]:
        document = document.setdefault(name, {})
        if not isinstance(document, dict):
            raise BadRequest(f"{field_path} needs {name} to be an object", field=field_path)
    return document


def _root(field_path: str) -> str:
    return field_path.split(".", maxsplit=1)[0]


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _not_a_request(request: Descriptor, error: Exception) -> BadRequest:
    named = _FIELD_IN_WORDS.search(str(error))
    if named and named.group(1):
        known = ", ".join(field.name for field in request.fields) or "none"
        return BadRequest(f"no field {named.group(1)!r} here; the request has: {known}", field=named.group(1))
    field = named.group(2) if named else "body"
    return BadRequest(str(error) or f"the request cannot be read ({type(error).__name__})", field=field)
