"""Replies that are drawn in every way, side by side in rings of real stage processes: each is what it is alone."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio
import torch
from silentswarm.core.v1 import generation_pb2, stage_pb2

from tests.integration.ring.lone_runs import make_spelled_llama, text_of
from tests.integration.ring.stages import StageRing
from tests.integration.ring.watch import until_free
from tests.models import load_reference
from tests.unit.stage_engine.reference_draws import Row, draw_reply

LOCAL, DIRECT, RELAY = stage_pb2.ROUTE_LOCAL, stage_pb2.ROUTE_DIRECT, stage_pb2.ROUTE_RELAY
Constraint, LogitBias, Sampling = generation_pb2.Constraint, generation_pb2.LogitBias, generation_pb2.Sampling
PROMPT = (7, 31, 7, 99, 150, 31, 12, 7, 200, 41, 5, 18, 31, 7, 60, 61, 62, 63, 7)
END = 2
CHUNK = 8  # so that prompts take three pieces

pytestmark = pytest.mark.asyncio(loop_scope="module")


@dataclass(frozen=True)
class Ask:
    """One request, and what its shape lets come at each place."""

    sampling: Sampling
    new_tokens: int = 14
    constraint: Constraint | None = None
    row: Row = (None,)

    def generation(self, place: int) -> generation_pb2.Generation:
        return generation_pb2.Generation(
            prompt_ids=generation_pb2.TokenIds(ids=prompt_of(place)),
            sampling=self.sampling,
            new_tokens_max=self.new_tokens,
            constraint=self.constraint,
            ignore_eos=self.constraint is None,
        )


def prompt_of(place: int) -> tuple[int, ...]:
    return (*PROMPT, 64 + place)


def shaped(regex: str, row: Row, **sampling: Any) -> Ask:
    """A reply that a regular expression spells, and then ends."""
    return Ask(Sampling(**sampling), len(row) + 5, Constraint(regex=regex), (*row, {END}))


NEARLY_ZERO = 1e-6
ASKS = {
    "plain": Ask(Sampling(temperature=0)),
    "greedy whatever else": Ask(Sampling(temperature=0, top_p=0.01, top_k=3, seed=77)),
    "nearly greedy": Ask(Sampling(temperature=NEARLY_ZERO, seed=3)),
    "seeded": Ask(Sampling(temperature=0.9, top_p=0.9, top_k=50, seed=1234)),
    "penalised": Ask(Sampling(temperature=0, frequency_penalty=1.5, presence_penalty=0.5)),
    "repelled": Ask(Sampling(temperature=0, repetition_penalty=1.8)),
    "attracted": Ask(Sampling(temperature=1.0, seed=5, frequency_penalty=-2.0, repetition_penalty=0.8)),
    "biased": Ask(Sampling(temperature=0, logit_bias=[LogitBias(token=60, bias=9), LogitBias(token=7, bias=-100)])),
    "told": Ask(Sampling(temperature=0, top_logprobs=5)),
    "told of all that": Ask(
        Sampling(temperature=0.7, seed=9, presence_penalty=2, logit_bias=[LogitBias(token=8, bias=4)], top_logprobs=20)
    ),
    "shaped": shaped("(<5>|<6>|<7>){3}<8>", [{5, 6, 7}] * 3 + [{8}], temperature=0),
    "shaped and all that": shaped(
        "(<1[0-9]>){4}", [set(range(10, 20))] * 4, temperature=1.0, seed=2, frequency_penalty=2, top_logprobs=2
    ),
}


@dataclass(frozen=True)
class Told:
    """What one reply was."""

    ids: tuple[int, ...]
    text: str
    logprobs: tuple[generation_pb2.GenerationEvent.TokenLogprob, ...]
    finish_reason: int


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_spelled_llama(tmp_path_factory.mktemp("spelled"))


@pytest.fixture(scope="module")
def whole(llama: Path) -> Any:
    torch.set_num_threads(1)
    return load_reference(llama)


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=[1, 2, 3])
async def ring(
    request: pytest.FixtureRequest, llama: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[StageRing]:
    scratch = tmp_path_factory.mktemp("ring")
    async with StageRing(llama, scratch, request.param, CHUNK, in_flight_max=len(ASKS), kv_tokens=1024) as ring:
        yield ring


async def ask_all(ring: StageRing, asks: dict[str, Ask]) -> dict[str, Told]:
    """All at once."""

    async def ask(place: int, name: str) -> Told:
        call = ring.generate(asks[name].generation(place), f"{name} {place}".replace(" ", "-"))
        events = [event async for event in call]
        assert events[-1].HasField("done"), (name, events[-1])
        batches = [event.tokens for event in events if event.HasField("tokens")]
        return Told(
            tuple(token for batch in batches for token in batch.ids),
            "".join(batch.text for batch in batches),
            tuple(told for batch in batches for told in batch.logprobs),
            events[-1].done.finish_reason,
        )

    answers = await asyncio.gather(*(ask(place, name) for place, name in enumerate(asks)))
    return dict(zip(asks, answers, strict=True))


def assert_as_alone(name: str, place: int, told: Told, whole: Any) -> None:
    ask = ASKS[name]
    new_tokens = ask.new_tokens if ask.constraint is None else len(ask.row)
    alone = draw_reply(whole, prompt_of(place), new_tokens, ask.sampling, ask.row)
    content = [token for token in alone.tokens if token != END or ask.constraint is None]

    assert list(told.ids) == alone.tokens, name
    assert told.text == text_of(content), name
    ends_early = ask.constraint is not None
    assert (told.finish_reason == generation_pb2.FINISH_REASON_STOP) == ends_early, name
    if not ask.sampling.HasField("top_logprobs"):
        assert not told.logprobs
        return
    assert len(told.logprobs) >= len(content)
    for token, said, logprobs_V in zip(content, told.logprobs, alone.logprobs_NV, strict=False):
        ids = [one.id for one in said.top]
        assert abs(said.logprob - logprobs_V[token]) < 1e-3, name
        assert len(ids) == ask.sampling.top_logprobs
        assert np.allclose([one.logprob for one in said.top], np.sort(logprobs_V)[::-1][: len(ids)], atol=1e-3)


@pytest.mark.parametrize("route", [DIRECT, RELAY], ids=["direct", "relay"])
async def test_every_way_of_drawing_side_by_side_is_what_it_is_alone(ring, whole, route):
    """A neighbour that is penalised, biased or shaped changes nothing for the others, nor they for it."""
    if len(ring.stages) == 1 and route is RELAY:
        route = LOCAL
    assert all(answer.connected for answer in await ring.wire(route))
    told = await ask_all(ring, ASKS)
    await until_free(ring)

    for place, name in enumerate(ASKS):
        assert_as_alone(name, place, told[name], whole)


async def test_a_reply_that_cannot_be_drawn_is_refused_and_its_neighbours_go_on(ring, whole):
    await ring.wire(DIRECT)
    bad = generation_pb2.Generation(
        prompt_ids=generation_pb2.TokenIds(ids=[5]),
        sampling=Sampling(temperature=0, logit_bias=[LogitBias(token=320, bias=1)]),
        new_tokens_max=4,
    )
    refused = asyncio.ensure_future(_last_event(ring, bad))
    told = await ask_all(ring, {name: ASKS[name] for name in ("plain", "seeded")})

    assert "logit_bias" in str(await refused)
    assert_as_alone("plain", 0, told["plain"], whole)
    assert_as_alone("seeded", 1, told["seeded"], whole)


async def _last_event(ring: StageRing, generation: generation_pb2.Generation) -> Any:
    """What a reply ended with: an event, or the call's own error."""
    try:
        return [event async for event in ring.generate(generation, "bad")][-1]
    except Exception as error:
        return error
