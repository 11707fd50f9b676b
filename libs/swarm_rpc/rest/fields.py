"""Text of a path or a query -> the JSON value of a request field. Pure; names the field in every refusal."""

import re

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from swarm_core.errors import BadRequest

_INTEGERS = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}
_NUMBERS = (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE)
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}
# Messages whose JSON form is one string or number, so that they fit into a query.
_PLAIN_MESSAGES = ("Timestamp", "Duration", "FieldMask", "StringValue", "BytesValue")
_INTEGER = re.compile(r"[+-]?[0-9]{1,20}")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?")


def find_field(message: Descriptor, field_path: str) -> FieldDescriptor | None:
    """The field "a.b.c" of a message, each name as in the proto or in camelCase; None when there is none."""
    field: FieldDescriptor | None = None
    for at, name in enumerate(field_path.split(".")):
        inside = message if at == 0 else field.message_type if field is not None and not field.is_repeated else None
        if inside is None:
            return None
        field = inside.fields_by_name.get(name) or inside.fields_by_camelcase_name.get(name)
        if field is None:
            return None
    return field


def fits_a_query(field: FieldDescriptor) -> bool:
    """Whether one text can hold a value of this field."""
    message = field.message_type
    return message is None or (
        message.file.package == "google.protobuf" and message.name in _PLAIN_MESSAGES and not is_map(field)
    )


def is_map(field: FieldDescriptor) -> bool:
    """Whether the field is a map."""
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def value_of(field: FieldDescriptor, field_path: str, text: str) -> object:
    """What proto3 JSON writes for `text` in this field. Raises BadRequest naming field_path and what it must be."""
    if field.enum_type is not None:
        return _enum_value(field, field_path, text)
    if field.cpp_type in _INTEGERS:
        low, high = _INTEGERS[field.cpp_type]
        if _INTEGER.fullmatch(text) and low <= int(text) <= high:
            return int(text)
        raise _wrong(field_path, text, f"a whole number from {low} to {high}")
    if field.cpp_type in _NUMBERS:
        if _NUMBER.fullmatch(text):
            return float(text)
        raise _wrong(field_path, text, "a number")
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        if text.lower() in _BOOLEANS:
            return _BOOLEANS[text.lower()]
        raise _wrong(field_path, text, "true or false")
    return text


def _enum_value(field: FieldDescriptor, field_path: str, text: str) -> str:
    """An enum by name, case aside, or by number."""
    for value in field.enum_type.values:
        if text.upper() == value.name.upper() or text == str(value.number):
            return value.name
    raise _wrong(field_path, text, "one of " + ", ".join(value.name for value in field.enum_type.values))


def _wrong(field_path: str, text: str, expected: str) -> BadRequest:
    return BadRequest(f"{field_path}={text[:100]!r} must be {expected}", field=field_path)
