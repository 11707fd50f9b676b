"""Real slices behind coded links: codes leave and come in, in every type, and a bad row is its own session's alone."""

from pathlib import Path

import numpy as np
import pytest
import torch
from silentswarm.core.v1 import stage_pb2, tensor_pb2
from swarm_core.errors import BadRequest, Reason
from swarm_core.slices import LayerRange
from swarm_stage.engine.sampling import Sampling
from swarm_stage.engine.steps import Outcome, Step
from swarm_stage.model.build_slice import build_slice
from swarm_stage.model.holding import Holding
from swarm_stage.serve.boundaries import inner_codecs_of
from swarm_stage.serve.torch_compute import TorchCompute
from swarm_wire.codecs import CODECS, check_coded

from tests.models import make_tiny_model, read_config, split_tensors

GREEDY = Sampling(temperature=0)
LAYERS, WIDTH = 3, 48
EACH_CODEC = pytest.mark.parametrize("codec", CODECS)
PROMPTS = {1: (5, 6, 7), 2: (9,), 3: (3, 4, 5, 6, 7, 8)}


@pytest.fixture(scope="module", params=["llama", "gemma2"])
def folder(request, tmp_path_factory) -> Path:
    """A model that batches, and one that does not."""
    torch.set_num_threads(1)
    return make_tiny_model(request.param, tmp_path_factory.mktemp(request.param), layers=LAYERS)


def compute_of(
    folder: Path, start: int, stop: int, dtype: str = "F32", codec_in: str = "", codec_out: str = "", **inner
):
    tensors = folder / "tensors"
    files = {path.stem: str(path) for path in tensors.glob("*")} or split_tensors(folder, tensors)
    layers = LayerRange(start, stop, LAYERS)
    inner_codecs = {int(name.removeprefix("at_")): codec for name, codec in inner.items()}
    model = build_slice(
        read_config(folder), layers, files, Holding(dtype), lambda done, total: None, inner_codecs=inner_codecs
    )
    return TorchCompute(model, layers, dtype, "cpu", codec_in, codec_out)


def run(stages: list[TorchCompute], steps: list[tuple[int, int, tuple[int, ...]]]) -> list[Outcome]:
    """Steps (session, pos, ids) of several sessions through all stages, together."""
    outcomes = stages[0].forward([Step(session, pos, ids, sampling=GREEDY) for session, pos, ids in steps])
    for stage in stages[1:]:
        onward = zip(steps, outcomes, strict=True)
        outcomes = stage.forward(
            [Step(session, pos, hidden=outcome.hidden, sampling=GREEDY) for (session, pos, _), outcome in onward]
        )
    assert all(outcome.error is None for outcome in outcomes)
    return outcomes


def replies(stages: list[TorchCompute], tokens: int = 5) -> dict[int, list[int]]:
    """Prompts one by one, then decode steps of all sessions together."""
    said: dict[int, list[int]] = {}
    for session, prompt in PROMPTS.items():
        for stage in stages:
            stage.open(session, 64)
        said[session] = [run(stages, [(session, 0, prompt)])[0].token]
    for step in range(tokens - 1):
        asked = [(session, len(prompt) + step, (said[session][-1],)) for session, prompt in PROMPTS.items()]
        for session, outcome in zip(PROMPTS, run(stages, asked), strict=True):
            said[session].append(outcome.token)
    return said


@EACH_CODEC
@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16"])
def test_a_coded_ring_says_what_one_process_says_with_the_boundary_inside(folder, codec, dtype):
    """Sessions step together on both, so they round alike: equal without a tie."""
    whole = [compute_of(folder, 0, LAYERS, dtype, at_1=codec)]
    ring = [
        compute_of(folder, 0, 1, dtype, codec_out=codec),
        compute_of(folder, 1, LAYERS, dtype, codec_in=codec),
    ]

    assert replies(ring) == replies(whole)


@EACH_CODEC
def test_every_stage_of_three_codes_what_leaves_and_reads_what_comes(folder, codec):
    other = CODECS[1 - CODECS.index(codec)]
    whole = [compute_of(folder, 0, LAYERS, at_1=codec, at_2=other)]
    ring = [
        compute_of(folder, 0, 1, codec_out=codec),
        compute_of(folder, 1, 2, codec_in=codec, codec_out=other),
        compute_of(folder, 2, LAYERS, codec_in=other),
    ]

    assert replies(ring) == replies(whole)


@EACH_CODEC
def test_what_leaves_is_a_tensor_that_the_next_stage_lets_through(folder, codec):
    first = compute_of(folder, 0, 1, codec_out=codec)
    for session in (1, 2):
        first.open(session, 16)
    prompts = first.forward([Step(1, 0, (5, 6, 7)), Step(2, 0, (8,))])
    together = first.forward([Step(1, 3, (9,)), Step(2, 1, (10,))])

    assert [check_coded(outcome.hidden, codec, WIDTH) for outcome in (*prompts, *together)] == [3, 1, 1, 1]


@EACH_CODEC
def test_a_session_whose_numbers_are_not_finite_fails_alone_where_it_would_be_coded(folder, codec):
    middle = compute_of(folder, 1, 2, codec_out=codec)
    for session in (1, 2, 3):
        middle.open(session, 16)

    def hidden(*numbers: float) -> tensor_pb2.Tensor:
        row_D = np.resize(np.array(numbers, dtype="<f4"), WIDTH)
        return tensor_pb2.Tensor(dtype="F32", shape=[1, WIDTH], data=row_D.tobytes())

    first = middle.forward([Step(session, 0, hidden=hidden(0.5, -1, session)) for session in (1, 2, 3)])
    assert all(outcome.error is None for outcome in first)
    rows = [hidden(1, 2), hidden(1, np.nan), hidden(2, 1)]
    mixed = middle.forward([Step(session, 1, hidden=row) for session, row in zip((1, 2, 3), rows, strict=True)])
    lone = middle.forward([Step(2, 1, hidden=hidden(np.inf))])

    assert [outcome.error is None for outcome in mixed] == [True, False, True]
    assert mixed[1].error.why is lone[0].error.why is Reason.STAGE_FAILED
    assert codec in mixed[1].error.message and mixed[1].hidden is None
    assert [check_coded(mixed[place].hidden, codec, WIDTH) for place in (0, 2)] == [1, 1]


def spec_of(stage_index: int = 1, **fields) -> stage_pb2.StageSpec:
    return stage_pb2.StageSpec(stage_index=stage_index, stage_count=3, layer_start=4, layer_stop=8, **fields)


def test_a_spec_tells_its_inner_boundaries_by_layer():
    inner = [{"layer": 5, "codec": "int8"}, {"layer": 7, "codec": "int4"}]

    assert inner_codecs_of(spec_of(codec_in="int8", codec_out="int4", inner_codecs=inner)) == {5: "int8", 7: "int4"}
    assert inner_codecs_of(spec_of()) == {}


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        (spec_of(codec_in="zip"), "codec_in"),
        (spec_of(codec_out="INT8"), "codec_out"),
        (spec_of(0, codec_in="int8"), "codec_in"),
        (spec_of(2, codec_out="int8"), "codec_out"),
        (spec_of(inner_codecs=[{"layer": 5, "codec": ""}]), "inner_codecs"),
        (spec_of(inner_codecs=[{"layer": 4, "codec": "int8"}]), "inner_codecs"),  # is the link's
        (spec_of(inner_codecs=[{"layer": 8, "codec": "int8"}]), "inner_codecs"),
        (spec_of(inner_codecs=[{"layer": 5, "codec": "int8"}] * 2), "inner_codecs"),
    ],
)
def test_a_spec_that_contradicts_itself_is_refused_before_anything_is_loaded(spec, field):
    with pytest.raises(BadRequest) as refused:
        inner_codecs_of(spec)

    assert refused.value.facts["field"] == field
