"""Path, query and body become a request, or a refusal that names the field."""

import json

import pytest
from google.api import annotations_pb2
from google.protobuf import descriptor_pb2, descriptor_pool, timestamp_pb2
from hypothesis import given
from hypothesis import strategies as st
from silentswarm.core.v1 import access_pb2, stage_pb2
from silentswarm.leader.v1 import serving_pb2
from swarm_core.errors import BadRequest
from swarm_rpc.rest import answer_json, build_request, route_table, routes_of

T = descriptor_pb2.FieldDescriptorProto
SERVING = route_table(routes_of(serving_pb2.DESCRIPTOR.services_by_name.values()))
LOAD = SERVING.find("POST", "/api/v1/models/a/load").target


def _trial_service():
    """A service with a request of every kind of field, made at run time: no RPC of ours has them all yet."""
    file = descriptor_pb2.FileDescriptorProto(
        name="trial/v1/trial.proto",
        package="trial.v1",
        syntax="proto3",
        dependency=["google/api/annotations.proto", timestamp_pb2.DESCRIPTOR.name, *_OUR_FILES],
    )
    inner = file.message_type.add(name="Inner")
    inner.field.add(name="depth_ms", number=1, type=T.TYPE_DOUBLE, label=T.LABEL_OPTIONAL)
    request = file.message_type.add(name="TrialRequest")
    for number, (name, kind, label, type_name) in enumerate(_FIELDS, start=1):
        request.field.add(name=name, number=number, type=kind, label=label, type_name=type_name)
    service = file.service.add(name="Trial")
    for name, access, verb, path, body in _RPCS:
        method = service.method.add(
            name=name, input_type=".trial.v1.TrialRequest", output_type=".trial.v1.TrialRequest"
        )
        setattr(method.options.Extensions[annotations_pb2.http], verb, path)
        method.options.Extensions[annotations_pb2.http].body = body
        method.options.Extensions[access_pb2.access] = access
    pool = descriptor_pool.Default()
    pool.AddSerializedFile(file.SerializeToString())
    return pool.FindServiceByName("trial.v1.Trial")


_OUR_FILES = ["silentswarm/core/v1/access.proto", "silentswarm/core/v1/stage.proto"]
_FIELDS = [
    ("name", T.TYPE_STRING, T.LABEL_OPTIONAL, None),
    ("count", T.TYPE_INT32, T.LABEL_OPTIONAL, None),
    ("big", T.TYPE_UINT64, T.LABEL_OPTIONAL, None),
    ("on", T.TYPE_BOOL, T.LABEL_OPTIONAL, None),
    ("share", T.TYPE_FLOAT, T.LABEL_OPTIONAL, None),
    ("words", T.TYPE_STRING, T.LABEL_REPEATED, None),
    ("route", T.TYPE_ENUM, T.LABEL_OPTIONAL, ".silentswarm.core.v1.Route"),
    ("inner", T.TYPE_MESSAGE, T.LABEL_OPTIONAL, ".trial.v1.Inner"),
    ("since", T.TYPE_MESSAGE, T.LABEL_OPTIONAL, ".google.protobuf.Timestamp"),
]
_RPCS = [
    ("Look", access_pb2.ACCESS_READ, "get", "/t/{name}", ""),
    ("Change", access_pb2.ACCESS_READ, "patch", "/t/{name}/inner", "inner"),
    ("Deep", access_pb2.ACCESS_READ, "get", "/deep/{inner.depth_ms}", ""),
    ("Hidden", access_pb2.ACCESS_UNSPECIFIED, "get", "/hidden/{name}", ""),
]
TRIAL_ROUTES = routes_of([_trial_service()])
TRIAL = route_table(TRIAL_ROUTES)


def ask(http_method: str, path: str, query=(), body: bytes = b""):
    """The request of a path."""
    found = TRIAL.find(http_method, path)
    return build_request(found.target, found.raw_variables, query, body)


def test_an_rpc_without_access_class_has_no_route():
    assert [route.method.name for route in TRIAL_ROUTES] == ["Look", "Change", "Deep"]


def test_query_parameters_fill_fields_of_every_kind():
    query = [
        ("count", "-3"),
        ("big", str(2**64 - 1)),
        ("on", "true"),
        ("share", "2.5e-1"),
        ("words", "a"),
        ("words", "b"),
        ("route", "route_relay"),
        ("inner.depth_ms", "7"),
        ("since", "2026-01-02T03:04:05Z"),
    ]
    request = ask("GET", "/t/x%2Fy", query)

    assert (request.name, request.count, request.big, request.on, request.share) == ("x/y", -3, 2**64 - 1, True, 0.25)
    assert list(request.words) == ["a", "b"]
    assert request.route == stage_pb2.ROUTE_RELAY
    assert request.inner.depth_ms == 7
    assert request.since.seconds == 1767323045


@pytest.mark.parametrize("text", ["2", "ROUTE_RELAY", "Route_Relay"])
def test_an_enum_is_read_by_name_or_number(text):
    assert ask("GET", "/t/x", [("route", text)]).route == stage_pb2.ROUTE_RELAY


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("count", "2147483648"),
        ("count", "1.0"),
        ("count", "١"),
        ("count", ""),
        ("big", "-1"),
        ("on", "yes"),
        ("share", "nan"),
        ("share", "1_0"),
        ("route", "ROUTE_MOON"),
        ("route", "99"),
        ("inner", "x"),
        ("inner.nothing", "1"),
        ("words.x", "1"),
        ("nothing", "1"),
        ("name", "again"),
        ("since", "yesterday"),
    ],
)
def test_a_wrong_query_parameter_is_named(name, text):
    with pytest.raises(BadRequest) as refused:
        ask("GET", "/t/x", [(name, text)])

    assert name.split(".")[0] in str(refused.value)
    assert name.split(".")[0] in refused.value.facts["field"]


def test_a_single_field_is_given_once():
    with pytest.raises(BadRequest, match="twice"):
        ask("GET", "/t/x", [("count", "1"), ("count", "2")])


def test_a_path_variable_may_be_a_field_of_a_field():
    assert ask("GET", "/deep/2.5").inner.depth_ms == 2.5
    with pytest.raises(BadRequest, match=r"inner\.depth_ms"):
        ask("GET", "/deep/two")


def test_a_body_may_fill_one_field_and_the_query_the_rest():
    request = ask("PATCH", "/t/x/inner", [("count", "2")], b'{"depth_ms": 4}')

    assert (request.name, request.count, request.inner.depth_ms) == ("x", 2, 4)


def test_a_path_that_is_not_utf8_is_refused():
    with pytest.raises(BadRequest, match="UTF-8"):
        ask("GET", "/t/%FF")


def load(body: bytes, query=()):
    """A load of model a/b."""
    return build_request(LOAD, {"model_id": "a%2Fb"}, query, body)


def test_the_body_fills_what_the_path_leaves():
    made = load(b'{"num_stages": 2, "fellowIds": ["anna"], "transport": 2, "model_id": "a/b"}')

    assert made == serving_pb2.LoadModelRequest(
        model_id="a/b", num_stages=2, fellow_ids=["anna"], transport=stage_pb2.TRANSPORT_TUNNEL
    )
    assert load(b"") == load(b"{}") == serving_pb2.LoadModelRequest(model_id="a/b")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"{", "body"),
        (b"[]", "body"),
        (b"\xff", "body"),
        (b'{"num_stages": NaN}', "body"),
        (b"[" * 200_000, "body"),
        (b'{"num_stages": ' + b"9" * 5000 + b"}", "body"),
        (b'{"num_stage": 1}', "num_stage"),
        (b'{"num_stages": -1}', "num_stages"),
        (b'{"fellow_ids": "anna"}', "fellow_ids"),
        (b'{"fellow_ids": ["\\ud800"]}', "fellow_ids"),
        (b'{"transport": "WARP"}', "transport"),
        (b'{"model_id": "c"}', "model_id"),
    ],
)
def test_a_wrong_body_is_refused_by_the_name_of_its_field(body, field):
    with pytest.raises(BadRequest) as refused:
        load(body)

    assert refused.value.facts["field"] == field


def test_a_body_has_a_bound():
    with pytest.raises(BadRequest, match="at most 10"):
        build_request(LOAD, {"model_id": "a"}, body=b'{"num_stages": 1}', body_bytes_max=10)


def test_a_route_that_reads_a_body_reads_no_query():
    with pytest.raises(BadRequest, match="JSON body"):
        load(b"", [("num_stages", "2")])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["model_id", "num_stages", "fellow_ids", "transport", "x"]), inner, max_size=4
        )
    ),
    max_leaves=8,
)


@given(JSON.map(lambda document: json.dumps(document).encode()) | st.binary(max_size=30))
def test_every_body_is_read_or_refused(body):
    try:
        made = load(body)
    except BadRequest as refused:
        assert refused.facts["field"] and str(refused)
    else:
        assert made.model_id == "a/b"


def test_an_answer_shows_its_whole_shape_and_big_numbers_as_text():
    answer = json.loads(answer_json(serving_pb2.ModelStatus(model_id="ä", epoch=2**63, probe_lap_ms=float("inf"))))

    assert answer["model_id"] == "ä"
    assert answer["epoch"] == str(2**63)
    assert answer["stages"] == [] and answer["running"] == 0
    assert answer["probe_lap_ms"] == "Infinity"
