"""A ring draws as asked, or the fellow that cannot is named; a request that asks for nothing new goes on as before."""

import pytest
from silentswarm.core.v1 import generation_pb2
from silentswarm.leader.v1 import inference_pb2
from swarm_core.errors import Reason

from tests.integration.leader.rig import MODEL, refusal_of, running_leader, text_of
from tests.integration.leader.scripted_fellow import ScriptedFellow, declare, joined

Sampling = generation_pb2.Sampling
OLD = declare(serve_sampling=None)


def ask(rig, **fields):
    generation = generation_pb2.Generation(prompt="x", **fields)
    return rig.inference.Generate(inference_pb2.GenerateRequest(model_id=MODEL, generation=generation))


@pytest.mark.parametrize("place", [0, 1])
async def test_what_a_fellow_of_the_ring_would_leave_out_is_refused_and_names_it(tmp_path, place):
    fellows = [ScriptedFellow(f"fellow-{index}", capabilities=OLD if index == place else None) for index in (0, 1)]
    async with running_leader(tmp_path) as rig, joined(rig.address, *fellows):
        await rig.load_ready(num_stages=2)
        refusals = [
            await refusal_of(ask(rig, sampling=Sampling(presence_penalty=1))),
            await refusal_of(ask(rig, sampling=Sampling(top_logprobs=0))),
            await refusal_of(ask(rig, constraint=generation_pb2.Constraint(regex="a+"))),
        ]
        plain = [event async for event in ask(rig, sampling=Sampling(temperature=0.5, top_p=0.5, repetition_penalty=1))]

    for refusal in refusals:
        assert refusal.why is Reason.CAPABILITY_MISSING
        assert refusal.facts["fellow"] == f"fellow-{place}" and refusal.facts["capability"] == "serve_sampling"
        assert f"fellow-{place}" in refusal.message
    assert text_of(plain) == "Hi there"
    assert sum(len(fellow.requests) for fellow in fellows) == 1


async def test_where_every_fellow_can_the_fields_arrive_as_they_were_asked(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, ScriptedFellow("kitchen")) as (kitchen,):
        await rig.load_ready()
        sampling = Sampling(
            frequency_penalty=0.5, top_logprobs=3, logit_bias=[generation_pb2.LogitBias(token=5, bias=-2)]
        )
        _ = [event async for event in ask(rig, sampling=sampling)]
        beyond = await refusal_of(
            ask(rig, sampling=Sampling(logit_bias=[generation_pb2.LogitBias(token=10**6, bias=1)]))
        )

    arrived = kitchen.requests[0].generation.sampling
    assert (arrived.frequency_penalty, arrived.top_logprobs) == (0.5, 3)
    assert [(bias.token, bias.bias) for bias in arrived.logit_bias] == [(5, -2)]
    assert (beyond.why, beyond.facts["field"]) == (Reason.BAD_REQUEST, "logit_bias")
