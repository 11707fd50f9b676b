"""What frames say of drawing is checked before it is used: a lie ends its own session, and nobody else's."""

import math

import pytest
from silentswarm.core.v1 import generation_pb2
from silentswarm.core.v1.token_set_pb2 import TokenSet
from silentswarm.ring.v1 import ring_pb2
from swarm_core.errors import Reason
from swarm_stage.engine.sampling import BIASES_MAX

from tests.unit.stage_engine.arithmetic_compute import VOCABULARY
from tests.unit.stage_engine.memory_ring import MemoryRing, lone_run

PROMPT = [5, 7, 11]
LogitBias, Sampling = generation_pb2.LogitBias, generation_pb2.Sampling
REFUSED = (Reason.BAD_FRAME, Reason.BAD_REQUEST)

lying_samplings = pytest.mark.parametrize(
    "sampling",
    [
        Sampling(logit_bias=[LogitBias(token=VOCABULARY, bias=1)]),
        Sampling(logit_bias=[LogitBias(token=2**32 - 1, bias=1)]),
        Sampling(logit_bias=[LogitBias(token=1, bias=math.nan)]),
        Sampling(logit_bias=[LogitBias(token=1, bias=math.inf)]),
        Sampling(logit_bias=[LogitBias(token=1, bias=-101)]),
        Sampling(logit_bias=[LogitBias(token=1), LogitBias(token=1)]),
        Sampling(logit_bias=[LogitBias(token=id % VOCABULARY) for id in range(BIASES_MAX + 1)]),
        Sampling(top_logprobs=21),
        Sampling(top_logprobs=10**6),
        Sampling(temperature=math.nan),
        Sampling(temperature=-1),
        Sampling(top_p=0),
        Sampling(repetition_penalty=0),
        Sampling(repetition_penalty=math.inf),
        Sampling(frequency_penalty=2.5),
        Sampling(presence_penalty=math.nan),
    ],
    ids=lambda sampling: str(sampling)[:30].replace("\n", " "),
)


@lying_samplings
def test_a_request_that_cannot_be_drawn_is_refused_before_it_waits(sampling):
    ring = MemoryRing(1, in_flight=1)
    running = ring.submit("running", PROMPT, 5)
    heard = ring.submit("bad", PROMPT, 5, sampling=sampling)

    assert heard.broke.error.why is Reason.BAD_REQUEST and heard.broke.error.facts["field"]
    assert not heard.waiting
    ring.run()
    assert running.tokens == lone_run(PROMPT, 1, 5)


def lie(change) -> tuple[MemoryRing, Reason]:
    """A session whose first frame is changed on its way to the last stage, beside one that is not; and what it got."""
    ring = MemoryRing(2)
    ring.step(0)
    heard = ring.submit("lied about", PROMPT, 4)
    ring.step(0)
    change(ring.links[1][0][0].frames[0].hidden)
    beside = ring.submit("beside", PROMPT, 4)
    ring.run()

    assert beside.tokens == lone_run(PROMPT, 2, 4)
    assert [compute.held_tokens() for compute in ring.computes] == [0, 0]
    return heard.broke.error.why


@lying_samplings
def test_a_frame_that_asks_for_the_impossible_ends_its_session(sampling):
    assert lie(lambda hidden: hidden.sampling.CopyFrom(sampling)) in REFUSED


@pytest.mark.parametrize(
    "allowed",
    [
        TokenSet(),
        TokenSet(bits=b"\xff" * 9),
        TokenSet(bits=b"\xff" * 125),
        TokenSet(bits=bytes(2**20)),
        TokenSet(only=TokenSet.IdList(ids=[VOCABULARY])),
        TokenSet(only=TokenSet.IdList(ids=[5, 5])),
        TokenSet(all_but=TokenSet.IdList(ids=range(VOCABULARY + 1))),
    ],
    ids=["none", "short", "spare bits", "long", "beyond", "twice", "too many"],
)
def test_a_set_of_tokens_that_lies_ends_its_session(allowed):
    assert lie(lambda hidden: hidden.allowed.CopyFrom(allowed)) is Reason.BAD_FRAME


@pytest.mark.parametrize("ids", [[VOCABULARY], list(range(VOCABULARY)) * 5])
def test_prompt_tokens_that_cannot_be_end_their_session(ids):
    assert lie(lambda hidden: hidden.prompt_ids.extend(ids)) is Reason.BAD_FRAME


def told(logprob=-1.0, ids=(0, 1), logprobs=(-1.0, -2.0)) -> ring_pb2.Likelihood:
    return ring_pb2.Likelihood(logprob=logprob, top_ids=ids, top_logprobs=logprobs)


@pytest.mark.parametrize(
    "likelihoods",
    [
        [],
        [told(), told()],
        [told(ids=(0,), logprobs=(-1.0,))],
        [told(ids=(0, 1, 2), logprobs=(-1.0, -2.0, -3.0))],
        [told(ids=(0, 1, 2))],
        [told(ids=(0, VOCABULARY))],
        [told(logprob=0.5)],
        [told(logprob=math.nan)],
        [told(logprob=-math.inf)],
        [told(logprobs=(-1.0, math.nan))],
    ],
)
def test_likelihoods_that_cannot_be_end_their_reply(likelihoods):
    ring = MemoryRing(2)
    heard = ring.submit("a", PROMPT, 4, sampling=Sampling(temperature=0, top_logprobs=2))
    beside = ring.submit("beside", PROMPT, 4)
    while not any(frame.HasField("sampled") for batch, _ in ring.links[0] for frame in batch.frames):
        ring.step(0)
        ring.step(1)
    sampled = ring.links[0][0][0].frames[0].sampled
    del sampled.likelihoods[:]
    sampled.likelihoods.extend(likelihoods)
    ring.run()

    assert heard.broke.error.why is Reason.BAD_FRAME and not heard.tokens
    assert beside.tokens == lone_run(PROMPT, 2, 4)


def test_likelihoods_nobody_asked_for_end_their_reply():
    ring = MemoryRing(2)
    heard = ring.submit("a", PROMPT, 4)
    ring.step(0)
    ring.step(1)
    ring.links[0][0][0].frames[0].sampled.likelihoods.append(told())
    ring.run()

    assert heard.broke.error.why is Reason.BAD_FRAME


@pytest.mark.parametrize("stages", [1, 2, 3])
def test_every_token_comes_with_its_likelihood_when_asked_and_with_none_when_not(stages):
    ring = MemoryRing(stages)
    asked = {
        top: ring.submit(str(top), PROMPT, 4, sampling=Sampling(temperature=0, top_logprobs=top)) for top in (0, 3)
    }
    plain = ring.submit("plain", PROMPT, 4)
    ring.run()

    assert plain.tokens == asked[0].tokens == asked[3].tokens
    assert [len(one.top) for one in asked[0].likelihoods] == [0] * 4
    assert [one.top for one in asked[3].likelihoods] == [((0, -1.0), (1, -2.0), (2, -3.0))] * 4
    assert not plain.likelihoods


def test_the_prompts_tokens_travel_once_each_in_the_first_frame_and_for_a_repetition_penalty_alone():
    ring = MemoryRing(3, chunk=2)
    ring.submit("a", [9, 5, 9, 2], 3, sampling=Sampling(temperature=0, repetition_penalty=1.5))
    ring.submit("b", [9, 5, 9, 2], 3, sampling=Sampling(temperature=0, frequency_penalty=1.5, repetition_penalty=1))
    ring.run()
    sent = [list(frame.hidden.prompt_ids) for batch in ring.sent for frame in batch.frames if frame.hidden.prompt_ids]

    assert sent == [[2, 5, 9]] * 2  # over both links
