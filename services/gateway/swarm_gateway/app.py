"""The gateway's HTTP application: every endpoint in one table, behind the front."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from functools import partial
from typing import Any

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST
from silentswarm.core.v1 import access_pb2
from swarm_core.clock import Clock
from swarm_core.loop_lag import watch_loop_lag
from swarm_rpc.rest import Route, Table, openapi_document, routes_of

from swarm_gateway.config import GatewayConfig
from swarm_gateway.endpoints import Endpoint, endpoint_table
from swarm_gateway.front.front import Front
from swarm_gateway.leader import Leader
from swarm_gateway.metrics import GatewayMetrics
from swarm_gateway.openai.openapi import openai_paths, openai_schemas
from swarm_gateway.openai.routes import openai_endpoints
from swarm_gateway.problems import json_response, too_many
from swarm_gateway.rest.handlers import RestHandlers
from swarm_gateway.rest.services import leader_services
from swarm_gateway.web.routes import web_endpoints

SCRAPES_MAX = 8  # at once; one server and a person or two look
STOP_GRACE_S = 2.0  # what a running reply gets to end by itself when the gateway stops


def make_app(config: GatewayConfig, leader: Leader, clock: Clock, version: str) -> web.Application:
    """The application; stopping it ends calls to the leader within STOP_GRACE_S."""
    metrics = GatewayMetrics(clock.monotonic_s)
    front = Front(make_table(config, leader, clock, version, metrics), config, leader, clock, metrics)

    async def stop(app: web.Application) -> None:
        await leader.close(STOP_GRACE_S)

    app = web.Application(middlewares=[front.answer_everything])
    # The front finds the endpoint; this only keeps the library from answering by itself.
    app.router.add_route("*", "/{path:.*}", _unreached, expect_handler=_invite_later)
    app.on_response_prepare.append(front.dress)
    app.on_shutdown.append(stop)
    app.cleanup_ctx.append(partial(_lag_watched, metrics))
    return app


def make_table(
    config: GatewayConfig, leader: Leader, clock: Clock, version: str, metrics: GatewayMetrics
) -> Table[Endpoint]:
    """Every endpoint of the gateway. Raises ValueError for one without an access class."""
    routes = list(routes_of(leader_services()))
    document = openapi_document(routes, "SilentSwarm", version, openai_paths(), openai_schemas())
    return endpoint_table(
        (
            *own_endpoints(document, version, metrics),
            *rest_endpoints(RestHandlers(config, leader), routes),
            *openai_endpoints(config, leader, clock, metrics),
            *web_endpoints(),
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
        Endpoint("GET", "/metrics", figures, access_pb2.ACCESS_READ),
        Endpoint("GET", "/api/v1/openapi.json", partial(_say_document, document), access_pb2.ACCESS_READ),
    ]


async def _lag_watched(metrics: GatewayMetrics, app: web.Application) -> AsyncIterator[None]:
    """Measure the event loop while the application runs."""
    watch = asyncio.create_task(watch_loop_lag(metrics.loop_lag_s.observe))
    yield
    watch.cancel()


async def _say_figures(
    metrics: GatewayMetrics, places: asyncio.Semaphore, request: web.Request, raw_variables: Mapping[str, str]
) -> web.Response:
    if places.locked():
        raise too_many(f"{SCRAPES_MAX} scrapes are in work; no more are taken")
    async with places:
        text = await asyncio.to_thread(metrics.text)  # milliseconds in which tokens go on
    return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE_LATEST})


async def _say_document(document: object, request: web.Request, raw_variables: Mapping[str, str]) -> web.Response:
    return json_response(document)


async def _unreached(request: web.Request) -> web.StreamResponse:
    raise AssertionError("the front answers every request")


async def _invite_later(request: web.Request) -> None:
    """A client that waits to be asked for its body is asked when it is read, not before it was let in."""
