"""What the engine relies on, held by the real model and by the arithmetic one that stands for it in engine tests."""

import pytest
from swarm_core.errors import BadRequest, Reason
from swarm_core.slices import LayerRange
from swarm_stage.engine.sampling import Sampling
from swarm_stage.engine.steps import Compute, Step
from swarm_stage.model.build_slice import build_slice
from swarm_stage.model.holding import Holding
from swarm_stage.serve.torch_compute import TorchCompute

from tests.models import make_tiny_model, read_config, split_tensors
from tests.unit.stage_engine.arithmetic_compute import ArithmeticCompute

GREEDY = Sampling(temperature=0)


@pytest.fixture(scope="module")
def real_halves(tmp_path_factory):
    """Two halves of a model that batches (llama) and of one that does not (gemma2)."""
    halves = {}
    for family in ("llama", "gemma2"):
        folder = make_tiny_model(family, tmp_path_factory.mktemp(family), layers=4)
        files = split_tensors(folder, folder / "tensors")
        for layers in (LayerRange(0, 2, 4), LayerRange(2, 4, 4)):
            model = build_slice(read_config(folder), layers, files, Holding("F32"), lambda done, total: None)
            halves[family, layers.is_first] = lambda model=model, layers=layers: TorchCompute(
                model, layers, "F32", "cpu"
            )
    return halves


@pytest.fixture(params=["llama", "gemma2", "arithmetic"])
def computes(request, real_halves) -> tuple[Compute, Compute]:
    """Stage 0 and the last stage."""
    if request.param == "arithmetic":
        return ArithmeticCompute(True, False), ArithmeticCompute(False, True)
    return real_halves[request.param, True](), real_halves[request.param, False]()


def send(first: Compute, last: Compute, steps: list[tuple[int, int, tuple[int, ...]]], sample: bool = True) -> list:
    """Steps (session, pos, ids) through both stages; tokens or errors, in order."""
    there = first.forward([Step(session, pos, ids=ids) for session, pos, ids in steps])
    assert all(outcome.error is None for outcome in there)
    back = last.forward(
        [
            Step(session, pos, hidden=outcome.hidden, sampling=GREEDY, sample=sample)
            for (session, pos, _), outcome in zip(steps, there, strict=True)
        ]
    )
    return [outcome.error or outcome.token for outcome in back]


def open_all(computes: tuple[Compute, Compute], *sessions: int) -> None:
    for compute in computes:
        for session in sessions:
            compute.open(session, 64)


def test_a_session_is_empty_when_opened_grows_with_its_steps_and_is_gone_when_closed(computes):
    open_all(computes, 1)
    empty = computes[0].held_tokens()
    send(*computes, [(1, 0, (5, 6, 7))])
    grown = [compute.held_tokens() for compute in computes]
    for compute in computes:
        compute.close(1)
        compute.close(1)

    assert empty == 0 and grown == [3, 3]
    assert [compute.held_tokens() for compute in computes] == [0, 0]


def test_a_step_before_what_is_held_crops_first_and_gives_the_same_again(computes):
    open_all(computes, 1)
    send(*computes, [(1, 0, (5, 6, 7))])
    first = send(*computes, [(1, 3, (8,))])
    again = send(*computes, [(1, 3, (8,))])

    assert first == again
    assert computes[0].held_tokens() == 4


def test_a_step_beyond_what_is_held_or_of_an_unknown_session_is_a_bad_frame(computes):
    computes[0].open(1, 0)
    beyond, unknown = computes[0].forward([Step(1, 5, ids=(4,)), Step(2, 0, ids=(4,))])

    assert beyond.error.why is Reason.BAD_FRAME and unknown.error.why is Reason.BAD_FRAME
    assert computes[0].held_tokens() == 0


def test_sessions_in_one_call_get_what_they_get_alone(computes):
    prompts = {1: (5, 6, 7), 2: (9,), 3: (3, 4, 5, 6, 7, 8)}
    open_all(computes, *prompts)
    for session, prompt in prompts.items():
        send(*computes, [(session, 0, prompt)])
    alone = [send(*computes, [(session, len(prompt), (11,))])[0] for session, prompt in prompts.items()]
    together = send(*computes, [(session, len(prompt), (11,)) for session, prompt in prompts.items()])

    assert together == alone


def test_a_call_mixes_prompts_steps_and_failures_and_keeps_them_apart(computes):
    open_all(computes, 1, 2, 3)
    for session in (1, 2):
        send(*computes, [(session, 0, (5, 6))])
    alone = send(*computes, [(1, 2, (7,))])
    outcomes = computes[0].forward(
        [Step(1, 2, ids=(7,)), Step(3, 9, ids=(7,)), Step(2, 2, ids=(7,)), Step(4, 0, ids=(7,))]
    )

    assert [outcome.error is None for outcome in outcomes] == [True, False, True, False]
    back = computes[1].forward([Step(1, 2, hidden=outcomes[0].hidden, sampling=GREEDY)])
    assert [back[0].token] == alone


def test_a_piece_that_asks_for_no_token_gives_none(computes):
    open_all(computes, 1)

    assert send(*computes, [(1, 0, (5, 6))], sample=False) == [None]


def test_what_goes_wrong_in_drawing_is_its_own_sessions_alone(real_halves):
    first, last = real_halves["llama", True](), real_halves["llama", False]()
    open_all((first, last), 1, 2)
    send(first, last, [(1, 0, (5, 6)), (2, 0, (5, 6))])
    there = first.forward([Step(session, 2, ids=(7,)) for session in (1, 2)])
    held = {1: (first.vocabulary_size,), 2: ()}  # no logit has this id
    outcomes = last.forward(
        [
            Step(session, 2, hidden=outcome.hidden, sampling=GREEDY, held_ids=held[session])
            for session, outcome in zip(held, there, strict=True)
        ]
    )

    assert outcomes[0].error.why is Reason.STAGE_FAILED
    assert outcomes[1].error is None and outcomes[1].token is not None


def test_an_adapter_that_is_not_held_opens_no_session(computes):
    for compute in computes:
        with pytest.raises(BadRequest, match="stranger"):
            compute.open(1, 64, "stranger")
    there = computes[0].forward([Step(1, 0, ids=(5, 6))])[0]

    assert there.error is not None and there.error.why == Reason.BAD_FRAME
    assert [compute.held_tokens() for compute in computes] == [0, 0]
