"""The documents of a response: itself, its items, its counts. Pure."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from swarm_gateway.openai.replies.asked import Document, Done, ReplyNames
from swarm_gateway.openai.replies.counts import swarm_extra
from swarm_gateway.openai.responses.request import ResponsesRequest
from swarm_gateway.problems import Problem

_LIMIT = 429


class ResponseDocument:
    """What every telling of one response repeats of its request."""

    def __init__(self, names: ReplyNames, request: ResponsesRequest, asked: Mapping[str, Any]) -> None:
        text = asked.get("text") or {}
        self._base: Document = {
            "id": names.completion_id,
            "object": "response",
            "created_at": names.created,
            "status": "in_progress",
            "background": False,
            "error": None,
            "incomplete_details": None,
            "instructions": request.instructions,
            "max_output_tokens": request.max_output_tokens,
            "max_tool_calls": None,
            "metadata": request.metadata or {},
            "model": names.model,
            "output": [],
            "parallel_tool_calls": request.parallel_tool_calls is not False,
            "previous_response_id": None,
            "reasoning": {"effort": request.reasoning.effort if request.reasoning else None, "summary": None},
            "service_tier": "default",
            "store": False,
            "temperature": request.temperature,
            "text": {"format": text.get("format") or {"type": "text"}},
            "tool_choice": asked.get("tool_choice") or "auto",
            "tools": [tool_document(tool) for tool in asked.get("tools") or ()],
            "top_logprobs": request.top_logprobs or 0,
            "top_p": request.top_p,
            "truncation": "disabled",
            "usage": None,
        }

    def running(self) -> Document:
        """Before its end."""
        return self._base

    def ended(self, status: str, output: Sequence[Document], done: Done) -> Document:
        """At its end. status: "completed", or "incomplete", which only the limit makes it."""
        details = {"reason": "max_output_tokens"} if status == "incomplete" else None
        return {
            **self._base,
            "status": status,
            "incomplete_details": details,
            "output": list(output),
            "usage": usage_of(done),
            **swarm_extra([done]),
        }

    def failed(self, problem: Problem, output: Sequence[Document]) -> Document:
        """What broke off."""
        code = "rate_limit_exceeded" if problem.status == _LIMIT else "server_error"
        error = {"code": code, "message": problem.message}
        return {**self._base, "status": "failed", "error": error, "output": list(output)}


def tool_document(tool: Mapping[str, Any]) -> Document:
    """A tool as it was given, with every key that clients read."""
    return {"description": None, "parameters": None, "strict": False, **tool}


def usage_of(done: Done) -> Document:
    """Counts in tokens, as chat's."""
    return {
        "input_tokens": done.prompt_tokens,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": done.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": done.reasoning_tokens},
        "total_tokens": done.prompt_tokens + done.completion_tokens,
    }


def item_id(prefix: str, completion_id: str, output_index: int) -> str:
    """The name of an item, the same whenever the same reply is told."""
    return f"{prefix}_{hashlib.sha256(f'{completion_id}/{output_index}'.encode()).hexdigest()[:32]}"
