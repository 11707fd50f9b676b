"""A reply that goes on in another ring from the tokens it has: all as if nothing had happened."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from silentswarm.core.v1.generation_pb2 import Sampling
from swarm_stage.model.build_slice import build_slice
from swarm_stage.model.holding import Holding
from swarm_stage.serve.torch_compute import TorchCompute

from tests.models import even_ranges, make_tiny_model, read_config, split_tensors
from tests.unit.stage_engine.arithmetic_compute import VOCABULARY, ArithmeticCompute
from tests.unit.stage_engine.memory_ring import MemoryRing
from tests.unit.stage_engine.shapes import Cycle

ROW = [range(100, 200), None, [7, 600], range(0, VOCABULARY, 2)]
SAMPLINGS = [
    Sampling(temperature=0),
    Sampling(temperature=0, repetition_penalty=1.7, top_logprobs=3),
    Sampling(temperature=0.9, seed=11, frequency_penalty=1.5, presence_penalty=0.7),
    Sampling(temperature=1.3, seed=5, top_p=0.9, repetition_penalty=1.3, top_logprobs=2),
]


def shape_behind(accepted) -> Cycle:
    shape = Cycle(ROW, VOCABULARY)
    for token in accepted:
        shape.allowed()
        shape.accept(token)
    return shape


@settings(max_examples=60, deadline=None)
@given(
    stages=st.integers(1, 3),
    chunk=st.integers(0, 5),
    prompt=st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=12),
    new_tokens=st.integers(2, 9),
    cut=st.integers(1, 8),
    least=st.integers(0, 9),
    is_shaped=st.booleans(),
    ends=st.sets(st.integers(0, VOCABULARY - 1), max_size=64),
)
def test_a_reply_goes_on_as_it_would_have(stages, chunk, prompt, new_tokens, cut, least, is_shaped, ends):
    """With minima, shapes and ends, beside others, in pieces or whole."""
    fields = {"new_tokens_min": min(least, new_tokens), "end_ids": frozenset(ends)}

    def run(resume, **more):
        ring = MemoryRing(stages, chunk)
        others = [ring.submit(f"other {number}", [number, 9, 4], 6) for number in range(2)]
        shape = shape_behind(resume) if is_shaped else None
        heard = ring.submit("r", prompt, new_tokens, resume=resume, constraint=shape, **fields)
        ring.run()
        assert all(len(other.tokens) == 6 for other in others)
        assert [compute.held_tokens() for compute in ring.computes] == [0] * stages
        assert (ring.first.pieces_out, ring.first.batches_out, ring.budget.reserved_tokens) == (0, 0, 0)
        return heard

    whole = run(())
    before = whole.tokens[: min(cut, len(whole.tokens) - 1)]
    resumed = run(before)

    assert before + resumed.tokens == whole.tokens
    assert resumed.finished.completion_tokens == whole.finished.completion_tokens
    assert resumed.finished.reason == whole.finished.reason


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    folder = make_tiny_model("llama", tmp_path_factory.mktemp("llama"), layers=4)
    files = split_tensors(folder, folder / "tensors")

    def computes(stages: int) -> list[TorchCompute]:
        slices = [
            (build_slice(read_config(folder), layers, files, Holding("F32"), lambda *_: None), layers)
            for layers in even_ranges(4, stages)
        ]
        return [TorchCompute(model, layers, "F32", "cpu") for model, layers in slices]

    return computes


@pytest.mark.parametrize("stages", [1, 2])
def test_real_draws_go_on_with_penalties_seeds_and_likelihoods(stages, llama):
    prompt = [(7 * index + 3) % 319 for index in range(13)]
    computes = llama(stages)

    def run(sampling, resume=(), chunk=0):
        ring = MemoryRing(stages, chunk, computes=computes, hidden_size=48)
        heard = ring.submit("r", prompt, 24, sampling=sampling, resume=resume)
        ring.run()
        return heard

    for sampling, cut in product(SAMPLINGS, (1, 9, 23)):
        whole = run(sampling)
        resumed = run(sampling, whole.tokens[:cut], chunk=5)
        assert resumed.tokens == whole.tokens[cut:], (sampling, cut)
        likelihoods = [likelihood.logprob for likelihood in whole.likelihoods[cut:]]
        assert [likelihood.logprob for likelihood in resumed.likelihoods] == pytest.approx(likelihoods, abs=1e-4)


def test_what_was_drawn_before_is_told_once_and_only_for_penalties():
    sent = []
    for sampling in (Sampling(temperature=0), Sampling(temperature=0, presence_penalty=1)):
        ring = MemoryRing(2, 2)
        ring.submit("r", [5, 7, 11], 6, resume=[3, 8], sampling=sampling)
        ring.run()
        frames = [frame for batch in ring.sent for frame in batch.frames if frame.HasField("hidden")]
        sent.append([list(frame.hidden.drawn_ids) for frame in frames])

    assert not any(sent[0])
    assert sent[1][0] == [3, 8] and not any(sent[1][1:]) and len(sent[1]) > 4


@pytest.mark.parametrize("drawn", [[VOCABULARY], [1] * 4097])
def test_a_frame_that_says_too_much_was_drawn_fails_its_session_and_nothing_is_held(drawn):
    ring = MemoryRing(2)
    heard = ring.submit("r", [5, 7, 11], 6, resume=[3], sampling=Sampling(temperature=0, presence_penalty=1))
    ring.step(0)
    del ring.links[1][0][0].frames[0].hidden.drawn_ids[:]
    ring.links[1][0][0].frames[0].hidden.drawn_ids.extend(drawn)
    ring.run()

    assert "tokens of a prompt or reply" in heard.broke.error.message
    assert [compute.held_tokens() for compute in ring.computes] == [0, 0]


def test_an_adapter_goes_on_too():
    def run(resume=()):
        computes = [ArithmeticCompute(index == 0, index == 1, adapters={"lora/red": 100}) for index in range(2)]
        ring = MemoryRing(2, computes=computes)
        heard = ring.submit("r", [5, 7, 11], 6, adapter="lora/red", resume=resume)
        ring.run()
        return heard.tokens

    assert run(run()[:3]) == run()[3:]
