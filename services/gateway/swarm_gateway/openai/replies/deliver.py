"""Hands a reply's pieces to its reader: as a stream of events, or whole. Decides nothing about them."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

import structlog
from aiohttp import web

from swarm_gateway.config import GatewayConfig
from swarm_gateway.metrics import GatewayMetrics
from swarm_gateway.openai.replies.pieces import Piece, ReplyBroke
from swarm_gateway.sse import EventStream, ReaderGone

log = structlog.get_logger()
Pieces = AsyncGenerator[Piece, None]


async def deliver_whole(pieces: Pieces, headers: Mapping[str, str]) -> web.Response:
    """The reply as one document. Raises SwarmError, HttpProblem."""
    body = bytearray()
    async with aclosing(pieces):
        try:
            async for piece in pieces:
                body += piece.frames
        except ReplyBroke as broke:
            raise broke.error from None
    return web.Response(body=bytes(body), headers=headers, content_type="application/json")


async def deliver_stream(
    request: web.Request, pieces: Pieces, headers: Mapping[str, str], config: GatewayConfig, metrics: GatewayMetrics
) -> web.StreamResponse:
    """The reply as it comes. Raises SwarmError and HttpProblem until something was sent.

    Nothing is sent before there is something of the reply, so that a failure is a plain 4xx or 5xx; but a silence that
    lasts longer than the reader and the proxies between should endure opens the stream.
    """
    stream = EventStream(request, config.keep_alive_s, config.write_timeout_s)
    stream.response.headers.update(headers)
    try:
        with stream.watched():
            async with aclosing(pieces):
                try:
                    await _relay(stream, pieces, metrics)
                except ReplyBroke as broke:
                    if not stream.is_open:
                        raise broke.error from None
                    await stream.send_framed(broke.last_words)
                    await stream.close()
    except ReaderGone as gone:
        log.info("reader gone", why=str(gone))
    return stream.response


async def _relay(stream: EventStream, pieces: Pieces, metrics: GatewayMetrics) -> None:
    """Every piece, then the end. Raises ReplyBroke, ReaderGone."""
    async for piece in pieces:
        if piece.frames:
            break
        await stream.stand(piece.standing)
    else:
        return
    await stream.open()
    with metrics.streams.track_inprogress():
        await stream.send_framed(piece.frames)
        is_held = False
        async for piece in pieces:
            if not piece.frames:
                await stream.stand(piece.standing)
            else:
                if is_held:
                    await stream.open()  # comments say "keep-alive" again
                await stream.send_framed(piece.frames)
            is_held = not piece.frames
        await stream.close()
