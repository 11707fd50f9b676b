"""A conversation as a chat template wants it: tools, calls and their answers, reasoning. Pure: protos in, JSON out."""

import hashlib
import json
import re
from collections.abc import Sequence
from typing import Any

from silentswarm.core.v1 import generation_pb2
from swarm_core.errors import BadRequest

_ROLE = re.compile(r"[a-z][a-z_]{0,31}")
_TOLD = """{before}You can call tools. Each is described by a JSON object, one a line:
<tools>
{tools}
</tools>
To call one, write its name and its arguments as a JSON object between these marks, and nothing behind the last call:
<tool_call>
{{"name": "the tool's name", "arguments": {{"an argument's name": "its value"}}}}
</tool_call>"""


def template_messages(chat: generation_pb2.Chat) -> list[dict[str, Any]]:
    """Messages as templates know them. Raises BadRequest for a role that is no word: templates build marks of it."""
    return [_message(message) for message in chat.messages]


def template_tools(chat: generation_pb2.Chat) -> list[dict[str, Any]]:
    """The tools as templates know them; none when none may be called.

    Raises BadRequest for schemas that are none, and for a choice of tools that are not there.
    """
    choice = chat.tool_choice
    if choice.mode == generation_pb2.TOOL_MODE_REQUIRED:
        if not chat.tools:
            raise BadRequest("tool_choice asks for a call, and there are no tools", field="tool_choice")
        if choice.name and choice.name not in [tool.name for tool in chat.tools]:
            raise BadRequest(f"tool_choice names {choice.name!r}, which is none of the tools", field="tool_choice")
    if chat.tool_choice.mode == generation_pb2.TOOL_MODE_NONE:
        return []
    tools = []
    for tool in chat.tools:
        function = {"name": tool.name, "description": tool.description, "parameters": parameters_of(tool)}
        tools.append({"type": "function", "function": function})
    return tools


def parameters_of(tool: generation_pb2.Tool) -> dict[str, Any]:
    """The schema of a tool's arguments. Raises BadRequest."""
    if not tool.parameters.strip():
        return {"type": "object", "properties": {}}
    try:
        schema = json.loads(tool.parameters)
    except (ValueError, RecursionError):
        schema = None
    if not isinstance(schema, dict):
        raise BadRequest(f"the parameters of tool {tool.name!r} are no JSON object", field="tools")
    return schema


def with_short_ids(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Ids of calls as Mistral's templates insist on: nine letters and digits."""
    shortened = []
    for message in messages:
        message = dict(message)
        if message.get("tool_calls"):
            message["tool_calls"] = [{**call, "id": _short_id(call["id"])} for call in message["tool_calls"]]
        if message.get("tool_call_id"):
            message["tool_call_id"] = _short_id(message["tool_call_id"])
        shortened.append(message)
    return shortened


def with_told_tools(messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same for a template that knows no tools: all of it in words, in the Hermes format."""
    told: list[dict[str, Any]] = []
    for message in messages:
        if message["role"] == "tool":
            answer = f"<tool_response>\n{message['content']}\n</tool_response>"
            if told and told[-1].get("answers"):  # answers to calls of one turn are one turn
                told[-1]["content"] += "\n" + answer
            else:
                told.append({"role": "user", "content": answer, "answers": True})
            continue
        message = dict(message)
        calls = message.pop("tool_calls", [])
        marked = [f"<tool_call>\n{_json(_called(call))}\n</tool_call>" for call in calls]
        message["content"] = "\n".join([*([message["content"]] if message["content"] else []), *marked])
        told.append(message)
    if tools:
        first = told[0] if told and told[0]["role"] == "system" else None
        before = f"{first['content']}\n\n" if first is not None else ""
        words = _TOLD.format(before=before, tools="\n".join(_json(tool["function"]) for tool in tools))
        told = [{"role": "system", "content": words}, *(told[1:] if first is not None else told)]
    return [{key: value for key, value in message.items() if key != "answers"} for message in told]


def without_system(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same with a first system message at the head of the question, for templates that know no such role."""
    if len(messages) < 2 or messages[0]["role"] != "system" or messages[1]["role"] != "user":
        return list(messages)
    joined = f"{messages[0]['content']}\n\n{messages[1]['content']}"
    return [{**messages[1], "content": joined}, *messages[2:]]


def _message(message: generation_pb2.ChatMessage) -> dict[str, Any]:
    if not _ROLE.fullmatch(message.role):
        raise BadRequest(f"{message.role[:40]!r} is no role", field="messages")
    told: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.name:
        told["name"] = message.name
    if message.tool_call_id:
        told["tool_call_id"] = message.tool_call_id
    if message.reasoning:  # templates of different makers read it under different names
        told["reasoning_content"] = told["thinking"] = message.reasoning
    if message.tool_calls:
        told["tool_calls"] = [_call(call) for call in message.tool_calls]
    return told


def _call(call: generation_pb2.ToolCall) -> dict[str, Any]:
    """A call with its arguments as an object: templates write it as JSON. What is no JSON stays a text."""
    try:
        arguments = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError):
        arguments = call.arguments
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _called(call: dict[str, Any]) -> dict[str, Any]:
    return {"name": call["function"]["name"], "arguments": call["function"]["arguments"]}


def _short_id(call_id: str) -> str:
    if re.fullmatch(r"[A-Za-z0-9]{9}", call_id):
        return call_id
    return hashlib.sha256(call_id.encode()).hexdigest()[:9]


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
