"""Requests as they come off the wire: too large, or no message at all, ends the one call. Judges no content."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from swarm_core.errors import BadRequest, Overloaded, SwarmError

from swarm_rpc.errors import abort


@dataclass(frozen=True)
class Unreadable:
    """In place of a request. Left to itself, grpc would end the call with a code that says nothing."""

    code: grpc.StatusCode
    words: str


def reader(deserialize: Callable[[bytes], Any] | None, bytes_max: int | None) -> Callable[[bytes], Any]:
    """The same deserializer, with an Unreadable for what it cannot take. bytes_max None: whatever its size."""

    def read(raw: bytes) -> Any:
        if bytes_max is not None and len(raw) > bytes_max:
            # grpc's own words for its own limit, so that clients have one thing to recognise.
            words = f"Received message larger than max ({len(raw)} vs. {bytes_max})"
            return Unreadable(grpc.StatusCode.RESOURCE_EXHAUSTED, words)
        if deserialize is None:
            return raw
        try:
            return deserialize(raw)
        except (DecodeError, ValueError):
            return Unreadable(grpc.StatusCode.INVALID_ARGUMENT, "the request is not a message of this method")

    return read


async def read_all(requests: AsyncIterator[Any], end: Callable[[SwarmError], None]) -> AsyncIterator[Any]:
    """The requests of a stream, until one cannot be read: then `end` is told, and whoever reads hears it too."""
    async for request in requests:
        if isinstance(request, Unreadable):
            too_large = request.code is grpc.StatusCode.RESOURCE_EXHAUSTED
            error: SwarmError = Overloaded(request.words) if too_large else BadRequest(request.words)
            end(error)
            raise error
        yield request


async def refuse(request: Unreadable, context: grpc.aio.ServicerContext) -> None:
    """End the call. What is too large is told as grpc tells it, without a word of ours that a retry would help."""
    if request.code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        await context.abort(request.code, request.words)
    await abort(context, BadRequest(request.words))
