"""One list of reasons, in the protos, in Python and in the mapping to gRPC codes."""

import grpc
import pytest
from silentswarm.core.v1 import reason_pb2
from swarm_core.errors import Reason, RemoteError
from swarm_rpc.errors import grpc_code, status_of


def test_the_reasons_of_the_protos_are_the_reasons_of_the_code():
    named = {name.removeprefix("REASON_") for name in reason_pb2.Reason.keys()} - {"UNSPECIFIED"}  # noqa: SIM118

    assert named == {reason.value for reason in Reason}


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_travels_with_a_code_and_its_name(reason: Reason):
    status = status_of(RemoteError(reason, "words"))

    assert grpc_code(reason) is not grpc.StatusCode.OK
    assert reason.value.encode() in status.details[0].value
