"""Reads a request's body: bounded in bytes, in time and in how slowly it may come. Parses nothing."""

import asyncio

from aiohttp import ClientPayloadError, web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestPayloadError

from swarm_gateway.endpoints import PLACE
from swarm_gateway.front.places import SLOW_AFTER_S, Upload
from swarm_gateway.problems import HttpProblem, Problem, bad_request, body_too_large, for_good

PATIENCE_S = 10.0  # for a body of which nothing comes
LEAST_BYTES_PER_S = 1024  # how slowly one may come for longer than that
ENCODINGS = ("gzip", "deflate")


async def read_body(request: web.Request, bytes_max: int, timeout_s: float) -> bytes:
    """The whole body, decompressed.

    Raises HttpProblem: 413 as soon as bytes_max is passed (announced, arrived or unpacked), 415 for an encoding that is
    not read, 408 after timeout_s or below LEAST_BYTES_PER_S, 429 when too many bodies are on their way, 400 when the
    transfer itself is broken.
    """
    encoding = request.headers.get("Content-Encoding", "").strip().lower()
    if encoding not in ("", "identity", *ENCODINGS):
        words = f"bodies with Content-Encoding {encoding[:40]!r} are not read; send {', '.join(ENCODINGS)} or none"
        raise HttpProblem(unread_encoding(words))
    if request.content_length is not None and request.content_length > bytes_max:
        raise body_too_large(bytes_max)
    try:
        with request[PLACE].uploading() as upload:
            await _invite(request)
            return await _read(request.content, bytes_max, timeout_s, upload)
    except HttpProblem:
        if encoding:
            _leave_packed(request)
        raise
    except (RequestPayloadError, ClientPayloadError, HttpProcessingError) as error:
        raise bad_request(f"the body's transfer is broken: {_one_line(error)}") from None


async def _read(content: asyncio.StreamReader, bytes_max: int, timeout_s: float, upload: Upload) -> bytes:
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    slow_s = began_s + SLOW_AFTER_S
    body = bytearray()
    while not content.at_eof():
        due_s = began_s + min(timeout_s, PATIENCE_S + len(body) / LEAST_BYTES_PER_S)
        try:
            async with asyncio.timeout_at(min(due_s, slow_s)):
                piece = await content.readany()
        except TimeoutError:
            if due_s <= slow_s:
                words = f"the body did not arrive: {len(body)} bytes in {loop.time() - began_s:.3g} s"
                raise HttpProblem(Problem(408, words, "request_timeout")) from None
            slow_s = began_s + timeout_s + 1  # once
            upload.slow_down()
            continue
        if len(body) + len(piece) > bytes_max:
            raise body_too_large(bytes_max)
        upload.grow(len(piece))
        body += piece
    return bytes(body)


async def _invite(request: web.Request) -> None:
    """A client that asked whether to send its body at all may: everything else was looked at."""
    if request.headers.get("Expect", "").lower() == "100-continue" and not request.content.is_eof():
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n", drain=False)
        request.writer.output_size = 0


def unread_encoding(words: str) -> Problem:
    """415 with what is read."""
    return for_good(415, words, "unsupported_encoding", headers={"Accept-Encoding": ", ".join(ENCODINGS)})


def _leave_packed(request: web.Request) -> None:
    """Do not unpack the rest only to throw it away: the connection ends with the reply."""
    stop_reading = getattr(request.protocol, "stop_reading", None)
    if stop_reading is not None:
        stop_reading()


def _one_line(error: Exception) -> str:
    words = getattr(error, "message", "") or str(error) or type(error).__name__
    words = words.partition("message:")[2] or words  # behind a status, on a line of its own
    return " ".join(words.split())[:200]
