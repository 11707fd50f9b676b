"""Real models in rings that break: kept caches go on bit for bit, rebuilt ones give the same tokens and drawings."""

from functools import partial

import pytest
from silentswarm.core.v1.generation_pb2 import Sampling
from swarm_core.errors import LinkBroken
from swarm_core.slices import LayerRange
from swarm_stage.engine.steps import Step
from swarm_stage.model.build_slice import build_slice
from swarm_stage.model.holding import Holding
from swarm_stage.serve.torch_compute import TorchCompute

from tests.models import even_ranges, make_tiny_model, read_config, split_tensors
from tests.unit.stage_engine.memory_ring import Heard, MemoryRing

PROMPT = [(7 * index + 3) % 319 for index in range(21)]
STAGES = 3
WINDOW = 8
SAMPLINGS = {
    "greedy": Sampling(temperature=0, top_logprobs=2),
    "penalties": Sampling(
        temperature=0.9, seed=11, frequency_penalty=1.5, presence_penalty=0.7, repetition_penalty=1.3, top_logprobs=0
    ),
}


def slices_of(family, folder, **options):
    make_tiny_model(family, folder, layers=3, **options)
    files = split_tensors(folder, folder / "tensors")
    return [
        (build_slice(read_config(folder), layers, files, Holding("F32"), lambda *_: None), layers)
        for layers in even_ranges(3, STAGES)
    ]


@pytest.fixture(scope="module")
def families(tmp_path_factory):
    """A model with buffers of its own, and one whose layers look at a window only, by transformers' caches."""
    make = tmp_path_factory.mktemp
    return {
        "llama": slices_of("llama", make("llama")),
        "gemma3_text": slices_of("gemma3_text", make("gemma"), sliding_window=WINDOW),
    }


class Healing:
    """One ring over a model, its one or more replies, and what becomes of them."""

    def __init__(self, slices, codec: str = "", tape_bytes: int = 1 << 22) -> None:
        self._slices, self._codec = slices, codec
        computes = [self.compute(stage) for stage in range(STAGES)]
        self.ring = MemoryRing(STAGES, 5, computes=computes, hidden_size=48, codec=codec, tape_bytes_max=tape_bytes)

    def compute(self, stage: int) -> TorchCompute:
        model, layers = self._slices[stage]
        codecs = (self._codec if stage else "", self._codec if stage < STAGES - 1 else "")
        return TorchCompute(model, layers, "F32", "cpu", *codecs)

    def ask(self, name: str, sampling: Sampling, resume=(), new_tokens: int = 18) -> Heard:
        return self.ring.submit(name, PROMPT, new_tokens, sampling=sampling, resume=resume)

    def until(self, heard: Heard, tokens: int) -> None:
        while len(heard.tokens) < tokens:
            for stage in range(STAGES):
                self.ring.step(stage)

    def heal(self, fresh: set[int]) -> None:
        self.ring.break_off()
        for stage in fresh:
            self.ring.renew(stage, self.compute(stage))
        self.ring.begin_epoch(self.ring.epoch + 1, keeps=True, fresh=fresh)


@pytest.mark.parametrize(
    ("family", "codec", "fresh"),
    [
        *[("llama", "", fresh) for fresh in (set(), {0}, {1}, {2}, {0, 1})],
        ("llama", "int8", {1}),
        ("gemma3_text", "", set()),
        ("gemma3_text", "", {1}),
    ],
)
def test_replies_go_on_as_undisturbed_ones_draw(family, codec, fresh, families):
    """Side by side, so that batches differ; deeper in than the window of those layers that have one."""
    whole = Healing(families[family], codec)
    undisturbed = {name: whole.ask(name, sampling) for name, sampling in SAMPLINGS.items()}
    whole.ring.run()

    healing = Healing(families[family], codec)
    before = {name: healing.ask(name, sampling) for name, sampling in SAMPLINGS.items()}
    healing.until(before["penalties"], 5)
    healing.heal(fresh)
    after = {name: healing.ask(name, SAMPLINGS[name], heard.tokens) for name, heard in before.items()}
    healing.ring.run()

    for name, heard in undisturbed.items():
        assert before[name].tokens + after[name].tokens == heard.tokens, name
        logprobs = [likelihood.logprob for likelihood in before[name].likelihoods + after[name].likelihoods]
        assert logprobs == pytest.approx([likelihood.logprob for likelihood in heard.likelihoods], abs=2e-4)
    assert healing.ring.counters[0].resumed_kept == len(SAMPLINGS)


def test_a_kept_reply_goes_on_bit_for_bit(families):
    """The same steps, alone: not one bit of a likelihood differs."""
    whole = Healing(families["llama"])
    undisturbed = whole.ask("r", SAMPLINGS["greedy"])
    whole.ring.run()
    healing = Healing(families["llama"])
    before = healing.ask("r", SAMPLINGS["greedy"])
    healing.until(before, 7)
    healing.heal(set())
    after = healing.ask("r", SAMPLINGS["greedy"], before.tokens)
    healing.ring.run()

    assert before.likelihoods + after.likelihoods == undisturbed.likelihoods


def test_what_rebuilds_a_stage_is_what_was_sent_bit_for_bit(families):
    """Coded or not: the codes of a position are not made again."""
    for codec in ("", "int8", "int4"):
        healing = Healing(families["llama"], codec)
        heard = healing.ask("r", SAMPLINGS["greedy"])
        healing.until(heard, 7)
        sent = rows_from_stage_0(healing.ring)
        healing.heal({1})
        healing.ring.sent.clear()
        healing.ask("r", SAMPLINGS["greedy"], heard.tokens)
        healing.ring.run()
        rebuilt = rows_from_stage_0(healing.ring, rebuilds=True)
        assert len(rebuilt) == len(PROMPT) + 6
        assert all(sent[pos] == row for pos, row in rebuilt.items()), codec


def rows_from_stage_0(ring: MemoryRing, rebuilds: bool = False) -> dict[int, bytes]:
    """Each position as it was sent to stage 1."""
    rows: dict[int, bytes] = {}
    for frame in (frame for batch in ring.sent for frame in batch.frames if len(frame.traces) <= 1):
        hidden = frame.hidden
        if not frame.HasField("hidden") or hidden.rebuilds != rebuilds:
            continue
        shape = hidden.hidden.shape or hidden.coded.shape
        elements, scales = hidden.hidden.data or hidden.coded.codes, hidden.coded.scales
        wide, scale = len(elements) // shape[0], len(scales) // shape[0]
        for row in range(shape[0]):
            part = elements[row * wide : (row + 1) * wide] + scales[row * scale : (row + 1) * scale]
            rows.setdefault(frame.pos + row, part)
    return rows


@pytest.mark.parametrize("family", ["llama", "gemma3_text"])
def test_a_detached_cache_goes_back_to_any_position_and_no_further_than_it_holds(family, families):
    model, layers = families[family][0]
    compute = TorchCompute(model, layers, "F32", "cpu")
    forward = partial(compute.forward)
    compute.open(1, 64)
    compute.open(2, 64)
    whole = [forward([Step(1, 0, ids=PROMPT)])[0], *[forward([Step(1, 21 + at, ids=(at,))])[0] for at in range(9)]]
    held = compute.detach(1)
    assert compute.attach(3, held, 24)
    again = [forward([Step(3, 24 + at, ids=(3 + at,))])[0] for at in range(6)]
    assert [outcome.hidden for outcome in again] == [outcome.hidden for outcome in whole[4:]]

    held = compute.detach(3)
    assert held.length == 30
    assert not compute.attach(4, held, 31)
    assert compute.detach(9) is None and compute.held_tokens() == 0


def test_a_ring_that_breaks_while_prompts_are_computed_starts_those_replies_anew(families):
    healing = Healing(families["llama"])
    heard = healing.ask("r", SAMPLINGS["greedy"])
    for stage in (0, 1, 0, 1, 2):
        healing.ring.step(stage)
    assert not heard.tokens
    healing.heal(set())
    assert isinstance(heard.broke.error, LinkBroken)
    again = healing.ask("r", SAMPLINGS["greedy"])
    healing.ring.run()

    assert len(again.tokens) == 18
    assert (healing.ring.counters[0].resumed_kept, healing.ring.counters[0].resumed_anew) == (0, 0)
    assert LayerRange(0, 1, 3) == families["llama"][0][1]
