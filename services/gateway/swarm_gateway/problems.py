"""Failures as HTTP: status, code and headers of every kind, and the one JSON shape of errors. Answers nothing.

A request that is wrong is 400 and never 422. A load that the fleet cannot carry (TOO_FEW_FELLOWS, NOT_ENOUGH_MEMORY,
CAPABILITY_MISSING, LOAD_FAILED, SERVABLE_CORRUPT) is 409: the request is sound, the state of the fleet or of the model
stands in its way, and `code` says which. What passes by itself is 503 with Retry-After. Bytes beyond a limit are 413,
tokens beyond the context are 400 with code context_length_exceeded.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from swarm_core.errors import Reason, SwarmError
from swarm_core.secrets import redacted

RETRY_AFTER_S = 5  # when the leader did not say
ROOM_AFTER_S = 2  # when a place of the gateway's own is likely free again
# Clients that would try a 409 or 500 again obey this; the same request fails the same way.
_NO_RETRY: Mapping[str, str] = {"x-should-retry": "false"}

_STATUS: Mapping[Reason, int] = {
    Reason.INTERNAL: 500,
    Reason.BAD_REQUEST: 400,
    Reason.MODEL_NOT_FOUND: 404,
    Reason.MODEL_NOT_READY: 503,
    Reason.SERVABLE_CORRUPT: 409,
    Reason.FELLOW_NOT_FOUND: 404,
    Reason.NO_FELLOW: 503,
    Reason.TOO_FEW_FELLOWS: 409,
    Reason.NOT_ENOUGH_MEMORY: 409,
    Reason.CAPABILITY_MISSING: 409,
    Reason.CONTEXT_TOO_LONG: 400,
    Reason.OVERLOADED: 429,
    Reason.DEADLINE: 504,
    Reason.CANCELLED: 503,
    Reason.STAGE_FAILED: 503,
    Reason.LINK_BROKEN: 503,
    Reason.FELLOW_LOST: 503,
    Reason.STALE_EPOCH: 503,
    Reason.BAD_FRAME: 500,
    Reason.LOAD_FAILED: 409,
    Reason.HASH_MISMATCH: 500,
    Reason.UNAUTHENTICATED: 401,
    Reason.PERMISSION_DENIED: 403,
    Reason.UNAVAILABLE: 503,
    Reason.CONFLICT: 409,
    Reason.DISK: 507,
    Reason.REPLY_NOT_FOUND: 404,
    Reason.SESSION_NOT_KEPT: 503,
}
# Where clients know another word than ours.
_CODES = {Reason.CONTEXT_TOO_LONG: "context_length_exceeded", Reason.UNAUTHENTICATED: "invalid_api_key"}
# One and the same whatever is wrong with a token, so that nobody learns which of them once was one.
_NOT_KNOWN = (
    "a valid API token is needed: send it as Authorization: Bearer sk-swarm-... (swarm tokens create makes one)"
)
_PARAMS = {
    Reason.MODEL_NOT_FOUND: "model",
    Reason.MODEL_NOT_READY: "model",
    Reason.SERVABLE_CORRUPT: "model",
    Reason.CONTEXT_TOO_LONG: "messages",
}
_TYPES = {403: "permission_error", 429: "rate_limit_error"}


@dataclass(frozen=True)
class Problem:
    """A failure as a client sees it. metadata: the numbers behind it, where the route shows them."""

    status: int
    message: str
    code: str | None = None
    param: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)

    @property
    def type(self) -> str:
        """The family of the error, in OpenAI's words."""
        return _TYPES.get(self.status, "server_error" if self.status >= 500 else "invalid_request_error")


class HttpProblem(Exception):
    """A failure that is HTTP's own: no such path, too many bytes."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


def problem_in(error: SwarmError | HttpProblem) -> Problem:
    """Either kind of failure as a client sees it."""
    return error.problem if isinstance(error, HttpProblem) else problem_of(error)


def problem_of(error: SwarmError) -> Problem:
    """How HTTP tells an error. Retry-After is what the leader said, else RETRY_AFTER_S, for 429 and 503."""
    status = _STATUS[error.why]
    if status == 401:
        return for_good(401, _NOT_KNOWN, "invalid_api_key", headers={"WWW-Authenticate": "Bearer"})
    headers: Mapping[str, str] = {}
    if status in (429, 503):
        headers = {"Retry-After": str(getattr(error, "retry_after_s", None) or RETRY_AFTER_S)}
    elif status != 504:
        headers = _NO_RETRY
    return Problem(
        status=status,
        message=_words(error),
        code=_CODES.get(error.why, error.why.value.lower()),
        param=error.facts.get("field") or _PARAMS.get(error.why),
        headers=headers,
        metadata=error.facts,
    )


def for_good(
    status: int,
    message: str,
    code: str | None = None,
    param: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Problem:
    """A refusal that the same request always meets; clients are told not to try again."""
    return Problem(status, message, code, param, {**(headers or {}), **_NO_RETRY})


def for_now(status: int, message: str) -> Problem:
    """A refusal for want of room, which passes by itself; clients are told when to come again."""
    return Problem(status, message, "overloaded", headers={"Retry-After": str(ROOM_AFTER_S)})


def bad_request(message: str, param: str | None = None, code: str | None = None) -> HttpProblem:
    """400 with the name of what is wrong."""
    return HttpProblem(for_good(400, message, code, param))


def too_many(words: str) -> HttpProblem:
    """429 of the gateway's own."""
    return HttpProblem(for_now(429, words))


def no_route(method: str, path: str) -> HttpProblem:
    """404 that shows the way."""
    shown = redacted(path)[:200]
    words = f"nothing at {method} {shown}; OpenAI's API is under /v1 (/v1/chat/completions), the rest under /api/v1"
    return HttpProblem(for_good(404, words, "not_found"))


def wrong_method(method: str, path: str, allowed: list[str]) -> HttpProblem:
    """405 with Allow."""
    allow = ", ".join(allowed)
    words = f"{redacted(path)[:200]} takes {allow}, not {method}"
    return HttpProblem(for_good(405, words, "method_not_allowed", headers={"Allow": allow}))


def body_too_large(bytes_max: int) -> HttpProblem:
    """413 with the limit."""
    words = f"the body is larger than {bytes_max} bytes (SWARM_MAX_BODY_MB sets the gateway's limit)"
    return HttpProblem(for_good(413, words, "request_too_large"))


def error_document(problem: Problem, with_metadata: bool = False) -> dict[str, Any]:
    """The JSON of a failure: the four keys OpenAI clients read, plus the numbers where they are wanted."""
    error: dict[str, Any] = {
        "message": problem.message,
        "type": problem.type,
        "param": problem.param,
        "code": problem.code,
    }
    if with_metadata:
        error["metadata"] = dict(problem.metadata)
    return {"error": error}


def error_response(problem: Problem, with_metadata: bool = False) -> web.Response:
    """The whole reply of a failure."""
    return json_response(error_document(problem, with_metadata), problem.status, problem.headers)


def json_response(document: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    """A JSON reply."""
    body = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    return web.Response(body=body, status=status, headers=headers, content_type="application/json")


def _words(error: SwarmError) -> str:
    """The message, with the numbers of its facts where it lacks them."""
    needed, budget = error.facts.get("needed_tokens"), error.facts.get("budget_tokens")
    if error.why is Reason.CONTEXT_TOO_LONG and needed and budget:
        return f"This model's maximum context length is {budget} tokens. However, your request needs {needed} tokens."
    available = error.facts.get("available")
    if error.why is Reason.MODEL_NOT_FOUND and available and available not in error.message:
        return f"{error.message}. Available: {available}"
    return error.message
