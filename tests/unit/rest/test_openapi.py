"""The OpenAPI document says what the routes do."""

import json
import re
from typing import Any

import pytest
from silentswarm.leader.v1 import fleet_pb2, models_pb2, serving_pb2, status_pb2
from swarm_rpc.rest import openapi_document, routes_of

SERVICES = [
    service
    for module in (fleet_pb2, models_pb2, serving_pb2, status_pb2)
    for service in module.DESCRIPTOR.services_by_name.values()
]


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return openapi_document(routes_of(SERVICES), "SilentSwarm", "1.0")


def operations(document):
    """Every (path, operation)."""
    return [(path, operation) for path, item in document["paths"].items() for operation in item.values()]


def test_every_route_is_an_operation_of_its_own(document):
    found = operations(document)

    assert len(found) == len(routes_of(SERVICES))
    assert len({operation["operationId"] for _, operation in found}) == len(found)


def test_every_reference_leads_somewhere(document):
    references = set(re.findall(r'"\$ref": "#/components/schemas/([^"]+)"', json.dumps(document)))

    assert references
    assert references <= set(document["components"]["schemas"])


def test_every_path_variable_is_declared(document):
    for path, operation in operations(document):
        declared = [parameter["name"] for parameter in operation["parameters"] if parameter["in"] == "path"]
        assert declared == re.findall(r"\{([^{}]+)\}", path)


def test_streams_bodies_and_access_are_told(document):
    watch = document["paths"]["/api/v1/models/{model_id}/status/stream"]["get"]
    load = document["paths"]["/api/v1/models/{model_id}/load"]["post"]

    assert list(watch["responses"]["200"]["content"]) == ["text/event-stream"]
    assert load["x-access"] == "operate"
    assert load["requestBody"]["content"]["application/json"]["schema"] == {
        "$ref": "#/components/schemas/silentswarm.leader.v1.LoadModelRequest"
    }
    status = document["components"]["schemas"]["silentswarm.leader.v1.ModelStatus"]["properties"]
    assert status["epoch"]["type"] == ["string", "integer"]
    assert "PLACEMENT_STATE_READY" in status["state"]["enum"]
