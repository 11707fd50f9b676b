"""What a load request says, as the planner reads it; and which of its fields is wrong."""

import pytest
from silentswarm.core.v1 import weights_pb2
from silentswarm.leader.v1 import serving_pb2
from swarm_core.errors import BadRequest
from swarm_leader.domain.planning.plan import PlanRequest
from swarm_leader.domain.records import Transport
from swarm_leader.rpc.placements import ADAPTERS_MAX, plan_request_from_proto


def read(**request):
    """A request for one model."""
    asked = serving_pb2.LoadModelRequest(**{"model_id": "org/tiny", **request})
    return plan_request_from_proto(asked, Transport.TUNNEL)


def said(**quantization):
    """A quantisation, in one of the ways to say it."""
    return weights_pb2.Quantization(**quantization)


def test_everything_a_request_says_reaches_the_planner():
    asked = read(
        num_stages=2,
        fellow_ids=["a", "b"],
        context_tokens=512,
        quantization=said(method="nf4"),
        adapters=["pirate", "*", "pirate"],
        codec="int8",
    )

    assert asked == PlanRequest(2, ("a", "b"), Transport.TUNNEL, 512, "nf4", ("pirate", "*"), "int8")
    assert read() == PlanRequest(transport=Transport.TUNNEL)


@pytest.mark.parametrize(
    ("quantization", "method"),
    [
        (said(), ""),
        (said(bits=4), "nf4"),
        (said(bits=8), "int8"),
        (said(bits=16), "none"),
        (said(method="none"), "none"),
        (said(backend="torchao"), "int4-fast"),
    ],
)
def test_every_way_to_say_a_quantisation_is_understood(quantization, method):
    assert read(quantization=quantization).quantization == method


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        ({"quantization": said(method="q4_k_m")}, "quantization"),
        ({"quantization": said(bits=3)}, "quantization.bits"),
        ({"quantization": said(backend="gptq")}, "quantization.backend"),
        ({"quantization": said(method="nf4", bits=8)}, "quantization"),
        ({"adapters": ["pirate", ""]}, "adapters"),
        ({"adapters": [str(number) for number in range(ADAPTERS_MAX + 1)]}, "adapters"),
        ({"codec": "fp8"}, "codec"),
    ],
)
def test_what_makes_no_sense_is_refused_by_its_field(request_, field):
    with pytest.raises(BadRequest) as refused:
        read(**request_)

    assert refused.value.facts["field"] == field
