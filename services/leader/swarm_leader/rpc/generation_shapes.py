"""Whether the shape and the tools of a reply make sense: sizes and names only. What they mean is the stage's to say."""

import re
from collections.abc import Sequence

from silentswarm.core.v1 import generation_pb2
from swarm_core.errors import BadRequest

# A stage compiles these while others wait for the same thread's turn; larger ones than this are attacks or mistakes.
SHAPE_BYTES_MAX = 64 * 2**10  # of one schema, regular expression or grammar, and of all choices together
CHOICES_MAX = 1024
TOOLS_MAX = 128
TOOLS_BYTES_MAX = 256 * 2**10  # of all tools together; the prompt holds them too
CALLS_MAX = 128  # of one message
NAME_CHARACTERS_MAX = 256  # of an id, or of the tool that an old message called
_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_MODES = (
    generation_pb2.TOOL_MODE_UNSPECIFIED,
    generation_pb2.TOOL_MODE_AUTO,
    generation_pb2.TOOL_MODE_NONE,
    generation_pb2.TOOL_MODE_REQUIRED,
)


def check_constraint(constraint: generation_pb2.Constraint) -> None:
    """Raises BadRequest that names the field."""
    kind = constraint.WhichOneof("kind")
    if kind is None:
        raise BadRequest("a constraint without a kind says nothing; leave it out for any text", field="constraint")
    if kind == "choices":
        _check_choices(constraint.choices.texts)
    elif kind != "json_object":
        _check_text(f"constraint.{kind}", getattr(constraint, kind), SHAPE_BYTES_MAX)


def check_tools(chat: generation_pb2.Chat) -> None:
    """Raises BadRequest that names the field."""
    names = [tool.name for tool in chat.tools]
    if len(names) > TOOLS_MAX:
        raise BadRequest(f"{len(names)} tools are more than {TOOLS_MAX}", field="tools")
    for index, tool in enumerate(chat.tools):
        if not _TOOL_NAME.fullmatch(tool.name):
            raise BadRequest(
                f'tools[{index}].name has {len(tool.name)} characters; a name has 1..64 letters, digits, "-" or "_"',
                field=f"tools[{index}].name",
            )
        if len(tool.parameters.encode()) > SHAPE_BYTES_MAX:
            raise _too_large(f"tools[{index}].parameters", len(tool.parameters.encode()), SHAPE_BYTES_MAX)
    twice = next((name for index, name in enumerate(names) if name in names[:index]), None)
    if twice is not None:
        raise BadRequest(f"two tools have the name {twice}", field="tools")
    size_bytes = sum(tool.ByteSize() for tool in chat.tools)
    if size_bytes > TOOLS_BYTES_MAX:
        raise _too_large("tools", size_bytes, TOOLS_BYTES_MAX)
    _check_choice(chat.tool_choice, names)


def check_calls(index: int, message: generation_pb2.ChatMessage) -> None:
    """What a message says of calls. Raises BadRequest that names the field."""
    if len(message.tool_calls) > CALLS_MAX:
        field = f"messages[{index}].tool_calls"
        raise BadRequest(f"{field} has {len(message.tool_calls)} calls; at most {CALLS_MAX}", field=field)
    words = {"tool_call_id": message.tool_call_id}
    for place, call in enumerate(message.tool_calls):
        words[f"tool_calls[{place}].id"], words[f"tool_calls[{place}].name"] = call.id, call.name
    for name, word in words.items():
        if len(word) > NAME_CHARACTERS_MAX:
            field = f"messages[{index}].{name}"
            raise BadRequest(f"{field} has {len(word)} characters; at most {NAME_CHARACTERS_MAX}", field=field)


def _check_choice(choice: generation_pb2.ToolChoice, names: Sequence[str]) -> None:
    if choice.mode not in _MODES:
        raise BadRequest(f"tool_choice has the unknown mode {choice.mode}", field="tool_choice")
    if choice.mode == generation_pb2.TOOL_MODE_REQUIRED and not names:
        raise BadRequest("tool_choice asks for a call and there are no tools", field="tool_choice")
    if choice.name and choice.mode != generation_pb2.TOOL_MODE_REQUIRED:
        raise BadRequest("tool_choice names a tool without requiring it", field="tool_choice")
    if choice.name and choice.name not in names:
        raise BadRequest(f"tool_choice names {choice.name[:64]!r}, which is not among the tools", field="tool_choice")


def _check_choices(texts: Sequence[str]) -> None:
    if not 0 < len(texts) <= CHOICES_MAX:
        raise BadRequest(f"{len(texts)} choices; give 1..{CHOICES_MAX}", field="constraint.choices")
    if not all(texts):
        raise BadRequest("one of the choices is empty", field="constraint.choices")
    _check_text("constraint.choices", "".join(texts), SHAPE_BYTES_MAX)


def _check_text(field: str, text: str, bytes_max: int) -> None:
    size_bytes = len(text.encode())
    if not size_bytes:
        raise BadRequest(f"{field} is empty", field=field)
    if size_bytes > bytes_max:
        raise _too_large(field, size_bytes, bytes_max)


def _too_large(field: str, size_bytes: int, bytes_max: int) -> BadRequest:
    words = f"{field} has {size_bytes:,} bytes, more than {bytes_max:,}"
    return BadRequest(words, field=field, size_bytes=size_bytes, size_bytes_max=bytes_max)
