"""Paths find their route, whatever their model is called."""

from urllib.parse import quote, unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from silentswarm.leader.v1 import fleet_pb2, inference_pb2, models_pb2, serving_pb2, status_pb2
from swarm_rpc.rest import Table, Template, route_table, routes_of

SERVICES = [
    service
    for module in (fleet_pb2, inference_pb2, models_pb2, serving_pb2, status_pb2)
    for service in module.DESCRIPTOR.services_by_name.values()
]
ROUTES = route_table(routes_of(SERVICES))
SUFFIXES = {"load": "POST", "plan": "POST", "unload": "POST", "status": "GET"}
# Segments that are never empty; "." and ".." are resolved by clients before they are sent.
SEGMENT = st.text(min_size=1, max_size=8).filter(lambda text: text not in (".", "..") and "/" not in text)
MODEL_ID = st.lists(SEGMENT, min_size=1, max_size=4).map("/".join).filter(lambda text: text.isprintable())


def find(http_method: str, path: str) -> tuple[str, dict[str, str]] | None:
    """The RPC and the decoded variables of a path."""
    found = ROUTES.find(http_method, path)
    if found is None:
        return None
    return found.target.method.name, {name: unquote(raw) for name, raw in found.raw_variables.items()}


@given(MODEL_ID, st.sampled_from(["/", ""]))
def test_any_model_id_reaches_its_rpcs_with_slashes_plain_or_encoded(model_id, safe):
    path = f"/api/v1/models/{quote(model_id, safe=safe)}"
    names = {"load": "LoadModel", "plan": "PlanModel", "unload": "UnloadModel", "status": "GetModelStatus"}

    for suffix, http_method in SUFFIXES.items():
        assert find(http_method, f"{path}/{suffix}") == (names[suffix], {"model_id": model_id})
    assert find("GET", f"{path}/status/stream") == ("WatchModel", {"model_id": model_id})


@given(MODEL_ID)
def test_an_encoded_id_is_never_taken_for_a_longer_route(model_id):
    assert find("GET", f"/api/v1/models/{quote(model_id, safe='')}") == ("GetModel", {"model_id": model_id})
    assert find("GET", f"/api/v1/models/{quote(model_id + '/status', safe='')}") == (
        "GetModel",
        {"model_id": f"{model_id}/status"},
    )


@pytest.mark.parametrize(
    ("http_method", "path", "rpc"),
    [
        ("GET", "/api/v1/models", "ListModels"),
        ("GET", "/api/v1/models/", "ListModels"),
        ("GET", "/api/v1/models/status", "GetModel"),
        ("GET", "/api/v1/models/llama:7b", "GetModel"),
        ("POST", "/api/v1/models:import", "ImportModel"),
        ("POST", "/api/v1/models%3Aimport", "ImportModel"),
        ("GET", "/api/v1/workers", "ListFellows"),
        ("GET", "/api/v1/cluster/nodes", "ListFellows"),
        ("POST", "/api/v1/workers/release", "ReleaseFellow"),
        ("POST", "/api/v1/workers/anna/ping", "PingFellow"),
        ("DELETE", "/api/v1/workers/anna", "DeleteFellow"),
    ],
)
def test_the_most_specific_route_wins(http_method, path, rpc):
    found = find(http_method, path)

    assert found is not None and found[0] == rpc


@pytest.mark.parametrize(
    "path", ["/api/v1", "/api/v1/models:export", "/api/v1/workers/a/b/ping", "/api/v1/models//load"]
)
def test_other_paths_find_nothing(path):
    assert find("POST", path) is None


def test_a_path_knows_its_methods():
    assert ROUTES.methods("/api/v1/models/a/load") == ["GET", "POST"]
    assert ROUTES.methods("/api/v1/models:import") == ["POST"]
    assert ROUTES.methods("/nowhere") == []


def test_a_variable_may_cover_several_segments():
    template = Template.parse("/v1/{name=shelves/*/books/*}:read")

    assert template.match(["v1", "shelves", "a", "books", "b:read"]) == {"name": "shelves/a/books/b"}
    assert template.match(["v1", "shelves", "a", "books", "b"]) is None


@pytest.mark.parametrize("text", ["v1/models", "/v1/{Model}", "/v1/{a=**}/{b=**}"])
def test_a_template_that_is_none_is_refused(text):
    with pytest.raises(ValueError):
        Template.parse(text)


def test_two_templates_for_the_same_paths_are_refused():
    table: Table[str] = Table()
    table.add("GET", Template.parse("/v1/{a}"), "first")
    table.add("POST", Template.parse("/v1/{b}"), "other method")

    with pytest.raises(ValueError, match="same paths"):
        table.add("GET", Template.parse("/v1/{b=*}"), "second")


def test_an_rpc_without_annotation_has_no_route():
    assert not [route for _, _, route in ROUTES if route.method.name == "Generate"]
