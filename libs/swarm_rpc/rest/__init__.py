"""JSON routes, requests and answers from the descriptors of the RPCs. No web framework, no I/O."""

from swarm_rpc.rest.answers import answer_json
from swarm_rpc.rest.openapi import openapi_document
from swarm_rpc.rest.requests import build_request
from swarm_rpc.rest.routes import Route, route_table, routes_of
from swarm_rpc.rest.table import Found, Table
from swarm_rpc.rest.template import Template

__all__ = [
    "Found",
    "Route",
    "Table",
    "Template",
    "answer_json",
    "build_request",
    "openapi_document",
    "route_table",
    "routes_of",
]
