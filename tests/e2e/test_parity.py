"""Greedy text equals transformers in one process, token for token: every split, direct and relayed."""

import grpc
import pytest
from silentswarm.core.v1 import generation_pb2
from silentswarm.leader.v1 import inference_pb2, inference_pb2_grpc

from tests.e2e.conftest import MODEL
from tests.e2e.swarm import swarm_up
from tests.models import load_reference, reference_run

NEW_TOKENS = 24
PROMPT_LENGTHS = (1, 2, 17, 300)
TIE = 1e-3  # gap of the two best logits below which another rounding may choose the other one


@pytest.fixture(scope="module")
def fleet(models_root, tmp_path_factory):
    options = ("--fellows", 4, "--no-model", "--model-dir", models_root)
    with swarm_up(tmp_path_factory.mktemp("parity"), *options, env={"SWARM_STAGE_THREADS": "1"}) as swarm:
        yield swarm


@pytest.fixture(scope="module")
def reference(reference_folder):
    model = load_reference(reference_folder)
    return {length: reference_run(model, prompt_of(length), NEW_TOKENS) for length in PROMPT_LENGTHS}


def prompt_of(length: int) -> list[int]:
    return [(7919 * (index + 3)) % 49_000 + 20 for index in range(length)]


def generate(address: str, prompt: list[int]) -> list[int]:
    generation = generation_pb2.Generation(
        prompt_ids=generation_pb2.TokenIds(ids=prompt),
        sampling=generation_pb2.Sampling(temperature=0),
        new_tokens_max=NEW_TOKENS,
        ignore_eos=True,
    )
    with grpc.insecure_channel(address) as channel:
        request = inference_pb2.GenerateRequest(model_id=MODEL, generation=generation)
        events = list(inference_pb2_grpc.InferenceStub(channel).Generate(request, timeout=120))
    return [token for answer in events for token in answer.event.tokens.ids]


@pytest.mark.parametrize(
    ("stages", "transport"),
    [
        (2, "p2p"),
        (3, "tunnel"),
        # Stage processes are compared over every number of stages and both ways in tests/integration/ring.
        *(
            pytest.param(*one, marks=pytest.mark.slow)
            for one in ((1, "auto"), (2, "tunnel"), (3, "p2p"), (4, "p2p"), (4, "tunnel"))
        ),
    ],
)
def test_greedy_text_equals_transformers_token_for_token(fleet, reference, stages, transport):
    load = fleet.cli("model-load", MODEL, "--num-stages", stages, "--transport", transport, "--wait")
    assert load.returncode == 0, load.stderr
    try:
        for length in PROMPT_LENGTHS:
            expected, logits = reference[length]
            assert_equal_or_tied(generate(fleet.grpc, prompt_of(length)), expected, logits)
    finally:
        assert fleet.cli("model-unload", MODEL).returncode == 0


def assert_equal_or_tied(tokens: list[int], expected: list[int], logits) -> None:
    """Equal, or first different where the lone run itself was a tie (which is printed)."""
    assert len(tokens) == len(expected)
    first = next((index for index, pair in enumerate(zip(tokens, expected, strict=True)) if pair[0] != pair[1]), None)
    if first is None:
        return
    best, second = logits[first].topk(2).values.tolist()
    print(f"tie at token {first}: gap {best - second:.2e}")
    assert best - second < TIE, f"token {first}: {tokens[first]} for {expected[first]}, gap {best - second:.3e}"
