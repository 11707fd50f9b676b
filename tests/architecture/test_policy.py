"""Every RPC says who may call it, and every JSON route belongs to exactly one RPC."""

import importlib
from collections import Counter

import pytest
from google.api import annotations_pb2
from google.protobuf import descriptor_pool
from google.protobuf.descriptor import MethodDescriptor
from silentswarm.core.v1 import access_pb2
from swarm_rpc.policy import access_of

from tests.architecture.code_tree import ROOT


def every_rpc() -> dict[str, MethodDescriptor]:
    """ "/package.Service/Method" -> descriptor, of every proto in the repository."""
    rpcs = {}
    for proto in sorted((ROOT / "protos" / "silentswarm").rglob("*.proto")):
        name = str(proto.relative_to(ROOT / "protos"))
        importlib.import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
        for service in descriptor_pool.Default().FindFileByName(name).services_by_name.values():
            rpcs |= {f"/{service.full_name}/{method.name}": method for method in service.methods}
    return rpcs


RPCS = every_rpc()


@pytest.mark.parametrize("full_method", sorted(RPCS))
def test_an_rpc_has_an_access_class(full_method: str):
    assert access_of(full_method) != access_pb2.ACCESS_UNSPECIFIED


def test_an_unknown_rpc_has_no_access_class():
    assert access_of("/silentswarm.leader.v1.Models/DropEverything") == access_pb2.ACCESS_UNSPECIFIED
    assert access_of("/someone.Else/Call") == access_pb2.ACCESS_UNSPECIFIED


def test_machines_call_what_is_not_for_people_and_the_other_way_round():
    """The leader package is what people and programs use; every other package is between machines."""
    wrong = [
        name for name in RPCS if name.startswith("/silentswarm.leader.") == (access_of(name) == access_pb2.ACCESS_NODE)
    ]

    assert wrong == []


def test_no_two_rpcs_share_a_json_route():
    routes: Counter[tuple[str, str]] = Counter()
    for method in RPCS.values():
        rule = method.GetOptions().Extensions[annotations_pb2.http]
        for binding in (rule, *rule.additional_bindings):
            verb = binding.WhichOneof("pattern")
            if verb:
                routes[(verb, getattr(binding, verb))] += 1

    assert routes
    assert [route for route, count in routes.items() if count > 1] == []


def test_a_json_route_that_changes_something_is_never_a_get():
    wrong = []
    for name, method in RPCS.items():
        rule = method.GetOptions().Extensions[annotations_pb2.http]
        if rule.WhichOneof("pattern") == "get" and not method.name.startswith(("Get", "List", "Watch")):
            wrong.append(name)

    assert wrong == []


def test_replies_reach_http_by_the_openai_endpoints_alone():
    """Those outlive their leader (swarm_rpc/lasting_reply.py); a JSON route would hand each break of its call on."""
    replies = {"GenerateEvent", "GenerationEvent"}
    routed = [
        name
        for name, method in RPCS.items()
        if method.output_type.name in replies and method.GetOptions().HasExtension(annotations_pb2.http)
    ]

    assert {name for name, method in RPCS.items() if method.output_type.name in replies} >= {
        "/silentswarm.leader.v1.Inference/Generate"
    }
    assert routed == []
