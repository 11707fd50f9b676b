"""What is told to a client whose bytes are no request. Reads and writes no connection."""

from http import HTTPStatus

from aiohttp.http_exceptions import ContentEncodingError, HttpProcessingError, LineTooLong
from multidict import CIMultiDict

from swarm_gateway.bodies import ENCODINGS, unread_encoding
from swarm_gateway.front.headers import NAME_HEADER, add_safety, new_name
from swarm_gateway.problems import Problem, error_response, for_good

LINE_BYTES_MAX = 8_190  # of a request line
FIELD_BYTES_MAX = 16_380  # of one header line; unlike LINE_BYTES_MAX, which tells them apart
HEADERS_MAX = 128
HEAD_BYTES_MAX = 64 * 2**10


def problem_of_broken(status: int, error: BaseException | None) -> Problem:
    """What broken HTTP is told as. status: what the library would answer, for what is not broken HTTP."""
    if isinstance(error, LineTooLong):
        if error.args[1] == LINE_BYTES_MAX:
            return for_good(414, f"the request line has more than {LINE_BYTES_MAX} bytes", "uri_too_long")
        return head_too_large()
    if isinstance(error, ContentEncodingError):
        return unread_encoding(f"send bodies as {', '.join(ENCODINGS)} or plain")
    if isinstance(error, HttpProcessingError):
        if error.message.startswith("Too many"):
            return head_too_large()
        return for_good(400, "this is not an HTTP/1.1 request", "bad_request")
    return Problem(status, "internal error in the gateway", "internal")


def head_too_large() -> Problem:
    """431 with the limits."""
    words = f"the headers have more than {HEADERS_MAX} lines, {FIELD_BYTES_MAX} bytes in one, or {HEAD_BYTES_MAX} bytes"
    return for_good(431, words, "headers_too_large")


def raw_reply(problem: Problem, is_bodiless: bool) -> bytes:
    """A whole reply, for a client that has sent no request."""
    response = error_response(problem)
    headers: CIMultiDict[str] = response.headers
    headers[NAME_HEADER] = new_name()
    add_safety(headers)
    body = response.body
    assert isinstance(body, bytes)
    headers["Content-Length"] = str(len(body))
    headers["Connection"] = "close"
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    head = f"HTTP/1.1 {problem.status} {HTTPStatus(problem.status).phrase}\r\n{lines}\r\n".encode()
    return head if is_bodiless else head + body
