"""Answers one JSON route: a unary RPC as JSON, a server stream as events. Decides no route and no access."""

import json
from collections.abc import Mapping

import structlog
from aiohttp import web
from google.protobuf.message import Message
from silentswarm.leader.v1 import status_pb2
from swarm_core.errors import SwarmError
from swarm_core.secrets import redacted
from swarm_rpc.rest import Route, answer_json, build_request
from swarm_rpc.rest.requests import BODY_BYTES_MAX

from swarm_gateway.bodies import read_body
from swarm_gateway.config import GatewayConfig
from swarm_gateway.leader import Events, Leader
from swarm_gateway.problems import HttpProblem, error_document, problem_in
from swarm_gateway.sse import EventStream, ReaderGone

log = structlog.get_logger()


class RestHandlers:
    """The JSON side of the leader's RPCs."""

    def __init__(self, config: GatewayConfig, leader: Leader) -> None:
        self._config = config
        self._leader = leader

    async def answer(self, route: Route, request: web.Request, raw_variables: Mapping[str, str]) -> web.StreamResponse:
        """One request. Raises SwarmError and HttpProblem until something was sent."""
        body = b""
        if route.body:
            bytes_max = min(self._config.body_bytes_max, BODY_BYTES_MAX)
            body = await read_body(request, bytes_max, self._config.read_timeout_s)
        message = build_request(route, raw_variables, request.query.items(), body)
        if route.streams and request.method == "HEAD":
            # A stream has no length to tell; events after these headers would stand before the next reply.
            return web.Response(content_type="text/event-stream", charset="utf-8")
        if route.streams:
            async with self._leader.stream(route.method, message, self._config.stream_timeout_s) as events:
                return await self._stream(request, events)
        answer = await self._leader.call(route.method, message, self._config.api_timeout_s)
        return web.Response(body=answer_json(answer), status=_status(answer), content_type="application/json")

    async def _stream(self, request: web.Request, events: Events[Message]) -> web.StreamResponse:
        """Every message as one event; a failure after the start is an `event: error`, and the end."""
        stream = EventStream(request, self._config.keep_alive_s, self._config.write_timeout_s)
        try:
            with stream.watched():
                try:
                    await _relay(stream, events)
                except (SwarmError, HttpProblem) as error:
                    if not stream.is_open:
                        raise
                    await _say_failure(stream, error)
        except ReaderGone as gone:
            log.info("reader gone", path=redacted(request.path), why=str(gone))
        return stream.response


async def _relay(stream: EventStream, events: Events[Message]) -> None:
    """A refusal comes at once and can then still be a plain reply; a long silence becomes a stream.

    Raises SwarmError, HttpProblem, ReaderGone.
    """
    message = await events.read()
    await stream.open()
    while message is not None:
        await stream.send(answer_json(message).decode())
        message = await events.read()
    await stream.close()


async def _say_failure(stream: EventStream, error: SwarmError | HttpProblem) -> None:
    """The last event of a stream that broke off. Raises ReaderGone."""
    await stream.send(json.dumps(error_document(problem_in(error), with_metadata=True)), event="error")
    await stream.close()


def _status(answer: Message) -> int:
    """200, but for a leader that says it is not ready: load balancers read the status alone."""
    return 503 if isinstance(answer, status_pb2.GetReadyResponse) and not answer.ready else 200
