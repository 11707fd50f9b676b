"""Reads a request's body: bounded in bytes and in time. Parses nothing."""

import asyncio

from aiohttp import ClientPayloadError, web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestPayloadError

from swarm_gateway.problems import HttpProblem, Problem, bad_request, body_too_large


async def read_body(request: web.Request, bytes_max: int, timeout_s: float) -> bytes:
    """The whole body, decompressed.

    Raises HttpProblem: 413 as soon as bytes_max is passed (announced or arrived), 408 after timeout_s, 400 when the
    transfer itself is broken.
    """
    if request.content_length is not None and request.content_length > bytes_max:
        raise body_too_large(bytes_max)
    body = bytearray()
    try:
        async with asyncio.timeout(timeout_s):
            async for piece in request.content.iter_any():
                body += piece
                if len(body) > bytes_max:
                    raise body_too_large(bytes_max)
    except TimeoutError:
        words = f"the body did not arrive within {timeout_s:g} s"
        raise HttpProblem(Problem(408, words, "request_timeout")) from None
    except (RequestPayloadError, ClientPayloadError, HttpProcessingError) as error:
        raise bad_request(f"the body's transfer is broken: {error}") from None
    return bytes(body)
