"""Bytes that are out there stay readable, and what is written stays what older peers read."""

from pathlib import Path

import pytest
from google.protobuf.message import Message

from tests.contract.golden_messages import all_golden

GOLDEN = Path(__file__).parent / "golden"
NEWER_FIELD = bytes.fromhex("c03e2a")  # field 1000, varint 42: what a newer peer might add
NAMES = sorted(all_golden())


@pytest.mark.parametrize("name", NAMES)
def test_a_message_serialises_to_the_bytes_that_are_kept(name: str):
    written = all_golden()[name].SerializeToString(deterministic=True)

    assert written == _golden(name)


@pytest.mark.parametrize("name", NAMES)
def test_the_bytes_that_are_kept_parse_to_the_message(name: str):
    message = all_golden()[name]

    assert type(message).FromString(_golden(name)) == message


@pytest.mark.parametrize("name", NAMES)
def test_a_field_of_a_newer_peer_is_ignored_and_passed_on(name: str):
    message = all_golden()[name]

    read = type(message).FromString(_golden(name) + NEWER_FIELD)

    assert _known_fields(read) == _known_fields(message)
    assert NEWER_FIELD in read.SerializeToString()


def test_a_capability_of_a_newer_fellow_leaves_the_others_as_they_are():
    declared = all_golden()["capabilities_35.hex"]
    newer = type(declared).FromString(NEWER_FIELD)

    assert [field.name for field in declared.DESCRIPTOR.fields if newer.HasField(field.name)] == []
    assert all(declared.HasField(field.name) for field in declared.DESCRIPTOR.fields)


def _golden(name: str) -> bytes:
    """The kept bytes; white space in the file is for people."""
    return bytes.fromhex((GOLDEN / name).read_text())


def _known_fields(message: Message) -> dict[str, object]:
    return {field.name: value for field, value in message.ListFields()}
