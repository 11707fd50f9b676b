"""The way of a request: named, let in, found, given a place, answered; and whatever goes wrong is a JSON reply."""

import re
from collections.abc import Awaitable, Callable
from http import HTTPStatus

import structlog
from aiohttp import web
from silentswarm.core.v1 import access_pb2
from swarm_core.clock import Clock
from swarm_core.errors import PermissionDenied, Reason, SwarmError
from swarm_core.listen import is_loopback
from swarm_core.secrets import redacted
from swarm_rpc.rest import Found, Table

from swarm_gateway.callers import caller_of
from swarm_gateway.config import GatewayConfig
from swarm_gateway.endpoints import CALLER, NAME, ORIGIN, PLACE, ROUTE, Endpoint
from swarm_gateway.front.access import ANYBODY, Doorkeeper, Visitor
from swarm_gateway.front.headers import NAME_HEADER, add_cross_origin, add_safety, new_name, preflight_headers
from swarm_gateway.front.origins import door_rules
from swarm_gateway.front.places import Places
from swarm_gateway.leader import Leader
from swarm_gateway.metrics import GatewayMetrics
from swarm_gateway.problems import (
    HttpProblem,
    Problem,
    bad_request,
    error_response,
    for_good,
    no_route,
    problem_of,
    wrong_method,
)

log = structlog.get_logger()
_REQUEST_ID = re.compile(r"[A-Za-z0-9_.-]{1,64}")
# What load balancers and Prometheus ask; it must answer also when every place is taken. Each is cheap, or has places of
# its own.
_NEVER_REFUSED = {"/healthz", "/metrics", "/api/v1/health", "/api/v1/ready"}
_LOOKING = ("GET", "HEAD")
_HTTP_1_1 = (1, 1)


class Front:
    """What stands before every handler."""

    def __init__(
        self, table: Table[Endpoint], config: GatewayConfig, leader: Leader, clock: Clock, metrics: GatewayMetrics
    ) -> None:
        self._table = table
        self._metrics = metrics
        self._clock = clock
        self._caller_secret = config.caller_secret
        self._rules = door_rules(config.host, config.allowed_hosts, config.cors_origins)
        self._is_exposed = not is_loopback(config.host) and not config.allow_insecure
        self._doorkeeper = Doorkeeper(leader, clock.monotonic_s)
        self._places = Places(
            config.requests_max, config.uploads_max, config.body_bytes_max, lambda count: metrics.running.set(count)
        )

    @web.middleware
    async def answer_everything(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Whatever happens is a JSON reply and one line of log. What the library would answer with is not asked."""
        started_s = self._clock.monotonic_s()
        given = request.headers.get("X-Request-Id", "")
        # Of the caller, when it is a plain word; every log line of this request carries it.
        is_word = _REQUEST_ID.fullmatch(given) and redacted(given) == given
        request[NAME] = given if is_word else new_name()
        request[ROUTE] = ""
        structlog.contextvars.bind_contextvars(request=request[NAME])
        status = 499  # what the log says of a client that left
        try:
            response = await self._answered(request)
            status = response.status
            return response
        finally:
            self._metrics.answered(request[ROUTE], status)
            took_ms = round((self._clock.monotonic_s() - started_s) * 1000, 1)
            path = redacted(request.path)
            log.info("answered", method=request.method, path=path, status=status, took_ms=took_ms)

    async def dress(self, request: web.Request, response: web.StreamResponse) -> None:
        """Headers of every reply, just before they are sent."""
        response.headers.setdefault(NAME_HEADER, request.get(NAME, ""))
        add_safety(response.headers)
        add_cross_origin(response.headers, request.get(ORIGIN, ""))

    async def _answered(self, request: web.Request) -> web.StreamResponse:
        with_metadata = request.path.startswith("/api/")
        try:
            return await self._dispatch(request)
        except HttpProblem as error:
            return error_response(error.problem, with_metadata)
        except SwarmError as error:
            if error.why is Reason.UNAUTHENTICATED:
                self._doorkeeper.forget(request.headers.getall("Authorization", []))
            return error_response(problem_of(error), with_metadata)
        except web.HTTPException as error:
            return error_response(Problem(error.status, error.reason or HTTPStatus(error.status).phrase))
        except Exception as error:
            log.error("request failed", path=redacted(request.path), exc_info=error)
            words = f"internal error in the gateway; its log has request {request[NAME]}"
            return error_response(Problem(500, words, "internal"))

    async def _dispatch(self, request: web.Request) -> web.StreamResponse:
        """Hand the request to its endpoint. Raises HttpProblem and SwarmError for everything that stands before it."""
        _check_message(request)
        self._check_host(request)
        path = request.rel_url.raw_path
        # A HEAD is its GET without the body, which aiohttp leaves out.
        found = self._table.find("GET" if request.method == "HEAD" else request.method, path)
        access = found.target.access if found else access_pb2.ACCESS_UNSPECIFIED
        self._check_page(request, is_open=access == access_pb2.ACCESS_PUBLIC and request.method in _LOOKING)
        if request.method == "OPTIONS" and request.get(ORIGIN) and "Access-Control-Request-Method" in request.headers:
            return _preflight(request)
        visitor = await self._let_in(request, access)
        if found is None:
            allowed = self._table.methods(path)
            raise wrong_method(request.method, path, allowed) if allowed else no_route(request.method, path)
        visitor.check(access)
        return await self._handled(request, found)

    async def _handled(self, request: web.Request, found: Found[Endpoint]) -> web.StreamResponse:
        request[ROUTE] = found.template.text
        with self._places.place(request.remote or "", found.template.text in _NEVER_REFUSED) as place:
            request[PLACE] = place
            return await found.target.handler(request, found.raw_variables)

    async def _let_in(self, request: web.Request, access: int) -> Visitor:
        """Who asks. Raises SwarmError when that may not be."""
        address = request.remote or ""
        authorizations = request.headers.getall("Authorization", [])
        if access == access_pb2.ACCESS_PUBLIC:
            request[CALLER] = caller_of("", address, self._caller_secret)
            return ANYBODY
        visitor = await self._doorkeeper.admit(authorizations)
        if not visitor.is_known and self._is_exposed:
            raise PermissionDenied(
                "this gateway listens beyond its machine while its leader asks for no token, so nobody is let in: make "
                "one with `swarm tokens create`"
            )
        credential = authorizations[0] if len(authorizations) == 1 else ""
        request[CALLER] = visitor.token_id or caller_of(credential, address, self._caller_secret)
        return visitor

    def _check_host(self, request: web.Request) -> None:
        """Raises HttpProblem 403 for a name that is not this gateway's, 400 for none."""
        hosts = request.headers.getall("Host", [])
        if len(hosts) > 1 or (not hosts and request.version >= _HTTP_1_1):
            raise bad_request("a request has exactly one Host header")
        if not request.raw_path.startswith("/") and request.url.authority:
            hosts = [*hosts, request.url.authority]  # the whole address as the target
        for host in hosts:
            if not self._rules.knows_host(host):
                words = (
                    f"{host[:100]!r} is not a name of this gateway; whoever runs it adds it, without a port, to "
                    "SWARM_ALLOWED_HOSTS"
                )
                raise _forbidden(words, "host_not_allowed")

    def _check_page(self, request: web.Request, is_open: bool) -> None:
        """Raises HttpProblem 403 for a page of a foreign site. is_open: nothing that is anyone's is asked for."""
        origin = request.headers.get("Origin", "")
        if origin:
            host = request.headers.get("Host", "")
            if self._rules.allows_origin(origin, request.scheme, host):
                request[ORIGIN] = origin
            elif not is_open:
                words = f"pages of {origin[:100]!r} may not use this gateway (SWARM_CORS_ORIGINS lists those that may)"
                raise _forbidden(words, "origin_not_allowed")
        # An image, script or form of a foreign page, which says no origin. A link that was followed is none of these.
        elif not is_open and _is_embedded(request):
            raise _forbidden("pages of other sites may not embed this", "origin_not_allowed")


def _check_message(request: web.Request) -> None:
    """Raises HttpProblem 400 or 417 for what no handler should have to think of."""
    try:
        request.path_qs.encode()
        request.raw_path.encode()
    except UnicodeEncodeError:
        raise bad_request("the path is not UTF-8") from None
    expect = request.headers.get("Expect", "100-continue")
    if expect.lower() != "100-continue":
        raise HttpProblem(Problem(417, "only Expect: 100-continue is met", "expectation_failed"))


def _is_embedded(request: web.Request) -> bool:
    site, mode = request.headers.get("Sec-Fetch-Site", ""), request.headers.get("Sec-Fetch-Mode", "")
    return site in ("cross-site", "same-site") and mode != "navigate"


def _preflight(request: web.Request) -> web.Response:
    is_private = request.headers.get("Access-Control-Request-Private-Network", "") == "true"
    asked = request.headers.get("Access-Control-Request-Headers", "")
    return web.Response(status=204, headers=preflight_headers(asked, is_private))


def _forbidden(words: str, code: str) -> HttpProblem:
    return HttpProblem(for_good(403, words, code))
