"""What the gateway answers: endpoints with the access each needs, in one table. Asks nobody and answers nothing."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass

from aiohttp import web
from silentswarm.core.v1 import access_pb2
from swarm_rpc.rest import Table, Template

from swarm_gateway.front.places import Place

# Takes the request and the still percent-encoded variables of its path.
Handler = Callable[[web.Request, Mapping[str, str]], Awaitable[web.StreamResponse]]
# What the front notes of a request. CALLER: who asks, one word: a token's id, else a fingerprint.
CALLER = web.RequestKey("caller", str)
NAME = web.RequestKey("name", str)
ROUTE = web.RequestKey("route", str)
ORIGIN = web.RequestKey("origin", str)
PLACE = web.RequestKey("place", Place)
_CLASSES = frozenset(
    {access_pb2.ACCESS_PUBLIC, access_pb2.ACCESS_READ, access_pb2.ACCESS_OPERATE, access_pb2.ACCESS_ADMIN}
)


@dataclass(frozen=True)
class Endpoint:
    """One route.

    path: a template, "/v1/models/{model=**}". access: an ACCESS_* number; PUBLIC only for liveness, static files and
    pages that hold nothing of anyone. Handlers never look at credentials: who asks is `request[CALLER]`.
    """

    http_method: str
    path: str
    handler: Handler
    access: int


def endpoint_table(endpoints: Iterable[Endpoint]) -> Table[Endpoint]:
    """The endpoints, to be found by path.

    Raises ValueError for one that does not say who may use it, and when two match the same paths.
    """
    table: Table[Endpoint] = Table()
    for endpoint in endpoints:
        if endpoint.access not in _CLASSES:
            raise ValueError(f"{endpoint.http_method} {endpoint.path} has no access class and cannot be added")
        table.add(endpoint.http_method, Template.parse(endpoint.path), endpoint)
    return table
