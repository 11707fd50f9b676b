"""The description of /v1: what it refers to is there, and its paths are those that are served."""

import json
import re

from swarm_core.clock import SystemClock
from swarm_gateway.config import GatewayConfig
from swarm_gateway.metrics import GatewayMetrics
from swarm_gateway.openai.openapi import openai_paths, openai_schemas
from swarm_gateway.openai.routes import openai_endpoints
from swarm_rpc.rest import Template


def test_every_reference_is_to_a_schema_that_is_there():
    schemas = openai_schemas()
    named = set(re.findall(r'"#/components/schemas/([^"]+)"', json.dumps([openai_paths(), schemas])))

    assert named and named <= schemas.keys()


def test_every_endpoint_of_v1_is_described():
    clock = SystemClock()
    endpoints = openai_endpoints(GatewayConfig(), None, clock, GatewayMetrics(clock.monotonic_s))
    served = {(Template.parse(one.path).text.replace("=**", ""), one.http_method.lower()) for one in endpoints}

    described = {(path, method) for path, item in openai_paths().items() for method in item}
    assert {one for one in served if one[0].startswith("/v1")} == described


def test_no_operation_lacks_a_name_of_its_own_or_an_access_class():
    operations = [operation for item in openai_paths().values() for operation in item.values()]

    assert len({operation["operationId"] for operation in operations}) == len(operations)
    assert {operation["x-access"] for operation in operations} == {"read", "operate"}
