"""One connection: limits on heads, on silence and on readers, and broken HTTP told as JSON. Knows no route.

Bounds, for every client and before any token: a head of HEAD_BYTES_MAX with HEADERS_MAX lines within head_timeout_s, a
reader that takes at least a buffer within write_timeout_s, and connections_max connections, of which idle ones make
room for new ones.
"""

import asyncio
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import structlog
from aiohttp import web

from swarm_gateway.front.broken import (
    FIELD_BYTES_MAX,
    HEAD_BYTES_MAX,
    HEADERS_MAX,
    LINE_BYTES_MAX,
    head_too_large,
    problem_of_broken,
    raw_reply,
)
from swarm_gateway.front.headers import NAME_HEADER, add_safety, new_name
from swarm_gateway.problems import Problem, error_response, for_now

log = structlog.get_logger()
LINGER_S = 2.0
READ_BYTES = 64 * 2**10  # of a body, read ahead of its handler


@dataclass(frozen=True)
class ConnectionLimits:
    """head_timeout_s: from the first byte of a head, or the connection, to its last. Times in seconds."""

    connections_max: int
    head_timeout_s: float
    write_timeout_s: float


class GatewayServer(web.Server):
    """Makes Connections. Built around what an application's runner would serve."""

    limits: ConnectionLimits

    @classmethod
    def around(cls, server: web.Server, limits: ConnectionLimits) -> "GatewayServer":
        """The same server, whose connections are limited."""
        made = cls.__new__(cls)
        made.__dict__.update(server.__dict__)
        made.limits = limits
        return made

    def __call__(self) -> web.RequestHandler:
        return Connection(self, self._loop, self.limits, **self._kwargs)


class GatewayRunner(web.AppRunner):
    """An application's runner with limited connections."""

    __slots__ = ("_limits",)

    def __init__(self, app: web.Application, limits: ConnectionLimits, **settings: Any) -> None:
        super().__init__(
            app,
            max_line_size=LINE_BYTES_MAX,
            max_field_size=FIELD_BYTES_MAX,
            max_headers=HEADERS_MAX,
            read_bufsize=READ_BYTES,
            **settings,
        )
        self._limits = limits

    async def _make_server(self) -> web.Server:
        return GatewayServer.around(await super()._make_server(), self._limits)


class Connection(web.RequestHandler):
    """One client's connection."""

    __slots__ = (
        "_end_timer",
        "_head_bytes",
        "_head_timer",
        "_is_bodiless",
        "_is_deaf",
        "_limits",
        "_payload",
        "_write_timer",
    )

    def __init__(
        self, server: GatewayServer, loop: asyncio.AbstractEventLoop, limits: ConnectionLimits, **settings: Any
    ) -> None:
        super().__init__(server, loop=loop, **settings)
        self._limits = limits
        self._payload: Any = None  # of the request whose head came last
        self._head_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._end_timer: asyncio.TimerHandle | None = None
        self._is_deaf = False
        self._is_bodiless = False  # the head that came last, or is coming, is of a HEAD

    @property
    def is_idle(self) -> bool:
        """Nothing of it is being answered."""
        return self._current_request is None and not self._messages

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take it when there is room, or room can be made."""
        super().connection_made(transport)
        assert self._manager is not None
        if len(self._manager.connections) > self._limits.connections_max and not self._has_room():
            log.warning("connection refused", why="SWARM_GATEWAY_CONNECTIONS_MAX are in use")
            self.refuse(for_now(503, "too many connections"))
            return
        self._expect_head()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Nothing is due any more."""
        self._forget_head()
        self._forget_write()
        if self._end_timer is not None:
            self._end_timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Count the bytes of a head that is not whole yet. Deaf, take them off the wire and no more."""
        if self._is_deaf:
            return
        was_in_head = self._payload is None or self._payload.is_eof()
        heads = self._request_count
        if was_in_head and not self._head_bytes and data:
            self._is_bodiless = data.startswith(b"HEAD ")
        super().data_received(data)
        if self._request_count != heads:
            self._payload = self._messages[-1][1] if self._messages else None
            self._forget_head()
        elif was_in_head and data:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES_MAX:
                self.refuse(head_too_large())
            elif self._head_timer is None:
                self._expect_head()

    def pause_writing(self) -> None:
        """The reader takes nothing: it has write_timeout_s until its buffer must be read."""
        super().pause_writing()
        self._write_timer = self._loop.call_later(self._limits.write_timeout_s, self._drop)

    def resume_writing(self) -> None:
        """It reads."""
        self._forget_write()
        super().resume_writing()

    def stop_reading(self) -> None:
        """End with the reply that comes now. What the client still sends is thrown away, neither parsed nor unpacked.

        It is taken for LINGER_S all the same: a client that is cut off while it sends never reads its reply.
        """
        self._is_deaf = True
        self._lingering_time = LINGER_S
        self._resume_transport_reading()

    def refuse(self, problem: Problem) -> None:
        """Say it, unless another reply is being written, and end the connection."""
        if self.transport is None or not self.is_idle:
            self.force_close()
        elif not self._is_deaf:
            self.transport.write(raw_reply(problem, self._is_bodiless))
            self.stop_reading()
            self._end_timer = self._loop.call_later(LINGER_S, self.force_close)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Broken HTTP as JSON. What was sent is neither told nor logged: it may hold credentials."""
        if request.writer.output_size > 0:
            raise ConnectionError("another reply was begun")
        problem = problem_of_broken(status, exc)
        name = new_name()
        log.info("not HTTP", request=name, status=problem.status, why=problem.message, kind=type(exc).__name__)
        response: web.Response = error_response(problem)
        if self._is_bodiless:
            response = web.Response(status=problem.status, headers=problem.headers)
        response.headers[NAME_HEADER] = name
        add_safety(response.headers)
        response.force_close()
        return response

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """What the library answers by itself, it answers in our words."""
        if isinstance(resp, web.HTTPException):
            resp = error_response(Problem(resp.status, HTTPStatus(resp.status).phrase))
            resp.headers[NAME_HEADER] = new_name()
            add_safety(resp.headers)
        if self._is_deaf:
            resp.force_close()
        return await super().finish_response(request, resp, start_time)

    def log_exception(self, *args: Any, **settings: Any) -> None:
        """The library's own lines would hold what was sent."""
        error = settings.get("exc_info")
        log.error("connection failed", kind=type(error).__name__)

    def _has_room(self) -> bool:
        """Whether this one may stay, if need be in the place of the oldest that is idle."""
        assert self._manager is not None
        others = [each for each in self._manager.connections if each.transport is not None and each is not self]
        if len(others) < self._limits.connections_max:
            return True  # the rest are ending already
        for connection in others:
            if isinstance(connection, Connection) and connection.is_idle:
                connection.force_close()
                return True
        return False

    def _expect_head(self) -> None:
        self._head_timer = self._loop.call_later(self._limits.head_timeout_s, self._give_up_head)

    def _give_up_head(self) -> None:
        words = f"no whole request came within {self._limits.head_timeout_s:g} s"
        self.refuse(Problem(408, words, "request_timeout"))

    def _forget_head(self) -> None:
        self._head_bytes = 0
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _forget_write(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def _drop(self) -> None:
        if self.transport is not None:
            self.transport.abort()
