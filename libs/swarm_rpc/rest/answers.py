"""An RPC's answer as JSON. Follows proto3 JSON with two choices of ours; writes no HTTP."""

import json

from google.protobuf import json_format
from google.protobuf.message import Message


def answer_json(message: Message) -> bytes:
    """One line of UTF-8 JSON.

    Names are spelled as in the proto, and fields at their default are written (absent optional ones are not), so that
    a client sees the whole shape. As proto3 JSON has it, 64-bit whole numbers are strings ("18446744073709551615"): a
    browser would round them. Enums are their names.
    """
    document = json_format.MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    return json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
