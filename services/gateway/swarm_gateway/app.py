"""The gateway's HTTP application: one table of routes, one place where failures become replies."""

import asyncio
import re
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextvars import ContextVar
from functools import partial
from http import HTTPStatus
from typing import Any

import structlog
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST
from silentswarm.core.v1 import access_pb2
from swarm_core.clock import Clock
from swarm_core.errors import SwarmError
from swarm_core.loop_lag import watch_loop_lag
from swarm_rpc.rest import Route, Table, openapi_document, routes_of

from swarm_gateway.config import GatewayConfig
from swarm_gateway.endpoints import Endpoint, endpoint_table
from swarm_gateway.leader import Leader
from swarm_gateway.metrics import GatewayMetrics
from swarm_gateway.openai.routes import openai_endpoints
from swarm_gateway.problems import (
    HttpProblem,
    Problem,
    error_response,
    json_response,
    no_route,
    problem_of,
    wrong_method,
)
from swarm_gateway.rest.handlers import RestHandlers
from swarm_gateway.rest.services import leader_services

log = structlog.get_logger()
_REQUEST_ID = re.compile(r"[A-Za-z0-9_.-]{1,64}")
METRICS_PATH = "/metrics"
_ROUTE: ContextVar[str] = ContextVar("route")  # the template that took the request being answered
SCRAPES_MAX = 8  # at once; one server and a person or two look
STOP_GRACE_S = 2.0  # what a running reply gets to end by itself when the gateway stops


def make_app(config: GatewayConfig, leader: Leader, clock: Clock, version: str) -> web.Application:
    """The application; stopping it ends calls to the leader within STOP_GRACE_S."""
    metrics = GatewayMetrics(clock.monotonic_s)
    front = Front(make_table(config, leader, clock, version, metrics), config, clock, metrics)

    async def stop(app: web.Application) -> None:
        await leader.close(STOP_GRACE_S)

    async def name_request(request: web.Request, response: web.StreamResponse) -> None:
        response.headers.setdefault("x-request-id", request_id())

    app = web.Application(middlewares=[front.answer_everything])
    app.router.add_route("*", "/{path:.*}", front.dispatch)
    app.on_response_prepare.append(name_request)
    app.on_shutdown.append(stop)
    app.cleanup_ctx.append(partial(_lag_watched, metrics))
    return app


def make_table(
    config: GatewayConfig, leader: Leader, clock: Clock, version: str, metrics: GatewayMetrics
) -> Table[Endpoint]:
    """Every endpoint of the gateway. Raises ValueError for one without an access class."""
    routes = list(routes_of(leader_services()))
    return endpoint_table(
        (
            *own_endpoints(openapi_document(routes, "SilentSwarm", version), version, metrics),
            *rest_endpoints(RestHandlers(config, leader), routes),
            *openai_endpoints(config, leader, clock, metrics),
        )
    )


def rest_endpoints(rest: RestHandlers, routes: Iterable[Route]) -> list[Endpoint]:
    """The leader's RPCs as JSON, each with the access class of its RPC."""
    return [
        Endpoint(route.http_method, route.template.text, partial(rest.answer, route), route.access) for route in routes
    ]


def own_endpoints(document: dict[str, Any], version: str, metrics: GatewayMetrics) -> list[Endpoint]:
    """What the gateway answers by itself."""
    alive = partial(_say_document, {"status": "ok", "version": version})
    figures = partial(_say_figures, metrics, asyncio.Semaphore(SCRAPES_MAX))
    return [
        Endpoint("GET", "/healthz", alive, access_pb2.ACCESS_PUBLIC),
        Endpoint("GET", METRICS_PATH, figures, access_pb2.ACCESS_READ),
        Endpoint("GET", "/api/v1/openapi.json", partial(_say_document, document), access_pb2.ACCESS_READ),
    ]


# What load balancers and Prometheus ask; it must answer also when slow callers hold every place. Each is cheap, or has
# places of its own.
_NEVER_REFUSED = {"/healthz", METRICS_PATH, "/api/v1/health", "/api/v1/ready"}


class Front:
    """What stands before every handler: finding it, counting it, and wording its failures."""

    def __init__(self, table: Table[Endpoint], config: GatewayConfig, clock: Clock, metrics: GatewayMetrics) -> None:
        self._table = table
        self._metrics = metrics
        self._requests_max = config.requests_max
        self._clock = clock
        self._running = 0

    async def dispatch(self, request: web.Request) -> web.StreamResponse:
        """Hand the request to its route. Raises HttpProblem when there is none, or too many are in work."""
        path = request.rel_url.raw_path
        # A HEAD is its GET without the body, which aiohttp leaves out.
        found = self._table.find("GET" if request.method == "HEAD" else request.method, path)
        if found is None:
            allowed = self._table.methods(path)
            raise wrong_method(request.method, path, allowed) if allowed else no_route(request.method, path)
        _ROUTE.set(found.template.text)
        if self._running >= self._requests_max and path not in _NEVER_REFUSED:
            raise _too_many(f"{self._running} requests are in work; no more are taken (SWARM_GATEWAY_REQUESTS_MAX)")
        self._running += 1
        try:
            with self._metrics.running.track_inprogress():
                return await found.target.handler(request, found.raw_variables)
        finally:
            self._running -= 1

    @web.middleware
    async def answer_everything(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Whatever happens is a JSON reply and one line of log."""
        started_s = self._clock.monotonic_s()
        given = request.headers.get("X-Request-Id", "")
        # Of the caller, when it is a plain word; every log line of this request carries it.
        name = given if _REQUEST_ID.fullmatch(given) else f"req_{uuid.uuid4().hex}"
        structlog.contextvars.bind_contextvars(request=name)
        _ROUTE.set("")
        status = 499  # what the log says of a client that left
        try:
            response = await self._answered(request, handler)
            status = response.status
            if not response.prepared:
                # A plain reply is prepared by aiohttp later, in another context than this one.
                response.headers["x-request-id"] = name
            return response
        finally:
            self._metrics.answered(_ROUTE.get(), status)
            took_ms = round((self._clock.monotonic_s() - started_s) * 1000, 1)
            log.info("answered", method=request.method, path=request.path, status=status, took_ms=took_ms)

    async def _answered(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        with_metadata = request.path.startswith("/api/")
        try:
            return await handler(request)
        except HttpProblem as error:
            return error_response(error.problem, with_metadata)
        except SwarmError as error:
            return error_response(problem_of(error), with_metadata)
        except web.HTTPException as error:
            return error_response(Problem(error.status, error.reason or HTTPStatus(error.status).phrase))
        except Exception as error:
            log.error("request failed", path=request.path, exc_info=error)
            words = f"internal error in the gateway; its log has request {request_id()}"
            return error_response(Problem(500, words, "internal"))


def request_id() -> str:
    """The name of the request being answered, in logs and replies."""
    return str(structlog.contextvars.get_contextvars().get("request", ""))


def _too_many(words: str) -> HttpProblem:
    return HttpProblem(Problem(429, words, "overloaded", headers={"Retry-After": "2"}))


async def _lag_watched(metrics: GatewayMetrics, app: web.Application) -> AsyncIterator[None]:
    """Measure the event loop while the application runs."""
    watch = asyncio.create_task(watch_loop_lag(metrics.loop_lag_s.observe))
    yield
    watch.cancel()


async def _say_figures(
    metrics: GatewayMetrics, places: asyncio.Semaphore, request: web.Request, raw_variables: Mapping[str, str]
) -> web.Response:
    if places.locked():
        raise _too_many(f"{SCRAPES_MAX} scrapes are in work; no more are taken")
    async with places:
        text = await asyncio.to_thread(metrics.text)  # milliseconds in which tokens go on
    return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE_LATEST})


async def _say_document(document: object, request: web.Request, raw_variables: Mapping[str, str]) -> web.Response:
    return json_response(document)
