"""One list of reasons, in the protos, in Python and in the mapping to gRPC codes."""

import grpc
import pytest
from silentswarm.core.v1 import reason_pb2
from swarm_core.errors import Reason, RemoteError
from swarm_rpc.errors import grpc_code, status_of
from swarm_rpc.reasons import error_from_proto


def test_the_reasons_of_the_protos_are_the_reasons_of_the_code():
    named = {name.removeprefix("REASON_") for name in reason_pb2.Reason.keys()} - {"UNSPECIFIED"}  # noqa: SIM118

    assert named == {reason.value for reason in Reason}


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_travels_with_a_code_and_its_name(reason: Reason):
    status = status_of(RemoteError(reason, "words"))

    assert grpc_code(reason) is not grpc.StatusCode.OK
    assert reason.value.encode() in status.details[0].value


def test_a_peer_may_name_its_facts_as_it_likes():
    """They come from another process, perhaps a newer one; none may be taken for a parameter of ours."""
    facts = {name: "x" for name in ("self", "reason", "message", "facts", "retry_after_s")}

    error = error_from_proto(reason_pb2.REASON_OVERLOADED, "words", facts)

    assert (error.why, error.message, error.facts) == (Reason.OVERLOADED, "words", facts)
