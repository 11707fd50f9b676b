"""JSON Schemas of proto messages, as json_format reads and writes them. Pure; comments are not in descriptors."""

from collections.abc import Iterable
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from swarm_rpc.rest.fields import is_map

Schema = dict[str, Any]
_NUMBER: Schema = {"type": "number"}
_SCALARS: dict[int, Schema] = {
    FieldDescriptor.TYPE_BOOL: {"type": "boolean"},
    FieldDescriptor.TYPE_STRING: {"type": "string"},
    FieldDescriptor.TYPE_BYTES: {"type": "string", "contentEncoding": "base64"},
    FieldDescriptor.TYPE_FLOAT: _NUMBER,
    FieldDescriptor.TYPE_DOUBLE: _NUMBER,
}
_WHOLE: dict[int, Schema] = {
    FieldDescriptor.CPPTYPE_INT32: {"type": "integer", "format": "int32"},
    FieldDescriptor.CPPTYPE_UINT32: {"type": "integer", "minimum": 0},
    # proto3 JSON writes 64-bit whole numbers as strings and reads both.
    FieldDescriptor.CPPTYPE_INT64: {"type": ["string", "integer"], "format": "int64"},
    FieldDescriptor.CPPTYPE_UINT64: {"type": ["string", "integer"], "format": "uint64"},
}
_WELL_KNOWN: dict[str, Schema] = {
    "google.protobuf.Timestamp": {"type": "string", "format": "date-time"},
    "google.protobuf.Duration": {"type": "string", "pattern": r"^-?[0-9]+(\.[0-9]+)?s$"},
    "google.protobuf.FieldMask": {"type": "string"},
    "google.protobuf.Struct": {"type": "object"},
    "google.protobuf.Value": {},
    "google.protobuf.Any": {"type": "object"},
}


def schema_of(field: FieldDescriptor) -> Schema:
    """The schema of one field; messages are referred to by name."""
    if is_map(field):
        values = field.message_type.fields_by_name["value"]
        return {"type": "object", "additionalProperties": schema_of(values)}
    one = _single(field)
    return {"type": "array", "items": one} if field.is_repeated else one


def reference(message: Descriptor) -> Schema:
    """Where the schema of a message stands."""
    return _WELL_KNOWN.get(message.full_name) or {"$ref": f"#/components/schemas/{message.full_name}"}


def message_schemas(messages: Iterable[Descriptor]) -> dict[str, Schema]:
    """Full name -> schema of these messages and of all they hold."""
    schemas: dict[str, Schema] = {}
    waiting = list(messages)
    while waiting:
        message = waiting.pop()
        if message.full_name in schemas or message.full_name in _WELL_KNOWN or message.GetOptions().map_entry:
            continue
        schemas[message.full_name] = {
            "type": "object",
            "additionalProperties": False,
            "properties": {field.name: schema_of(field) for field in message.fields},
        }
        for field in message.fields:
            inner = field.message_type
            if inner is not None and inner.GetOptions().map_entry:
                inner = inner.fields_by_name["value"].message_type
            if inner is not None:
                waiting.append(inner)
    return dict(sorted(schemas.items()))


def _single(field: FieldDescriptor) -> Schema:
    if field.message_type is not None:
        return reference(field.message_type)
    if field.enum_type is not None:
        return {"type": "string", "enum": [value.name for value in field.enum_type.values]}
    return dict(_SCALARS.get(field.type) or _WHOLE[field.cpp_type])
