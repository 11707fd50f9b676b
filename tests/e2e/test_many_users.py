"""Sixty-four people in one swarm at once: each hears its own secret and nobody else's, and nothing stays behind."""

import asyncio
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass

import aiohttp
import pytest

from tests.e2e.conftest import MODEL, QUICK
from tests.e2e.swarm import Swarm, swarm_up, wait_for
from tests.e2e.test_chat import get

WORDS = (  # one a person; the model alone repeats each, with its number, in this question
    "amber basil cedar delta ember fjord grape hazel ivory jolly koala lemon maple north olive pearl "
    "monkey raven sugar tulip umber panda willow yacht zebra anchor bishop candle dragon engine falcon garden "
    "tiger penguin dolphin kettle ladder magnet needle orange pepper rabbit cookie temple banana wagon badger cactus "
    "cherry feather goblin harbor insect jungle kitten lizard ginger nugget oyster parrot quiver rocket salmon tomato"
)
CALLERS = 4
REPLY_TOKENS = 16  # the longest answer that names a secret and ends
WORKING_BYTES = 128 * 2**20  # beyond weights and KV: buffers of forwards and messages, what the allocator keeps


@dataclass(frozen=True)
class Person:
    """What one asks and how long one stays. chunks_max: of the stream, before one leaves; None is to the end."""

    secret: str
    caller: str
    tokens_max: int
    is_streamed: bool
    stop: str | None
    chunks_max: int | None

    @property
    def number(self) -> str:
        """The part of the secret that no other text holds by chance."""
        return self.secret.rpartition("-")[2]

    def body(self) -> dict:
        question = f"The secret word is {self.secret}. What is the secret word?"
        body = {"model": MODEL, "messages": [{"role": "user", "content": question}], "temperature": 0}
        body |= {"max_tokens": self.tokens_max, "stream": self.is_streamed}
        return body | ({"stop": [self.stop]} if self.stop else {})


@dataclass(frozen=True)
class Reply:
    """What came of it."""

    text: str
    finish_reason: str | None  # None: the person left


def make_people(numbers: random.Random, count: int) -> list[Person]:
    """Half hear the whole answer; the others leave, are cut short, or stop at their own secret's number."""
    people = []
    for place in range(count):
        secret = f"{WORDS.split()[place]}-{1000 + 97 * place}"
        whole = place % 2 == 0
        people.append(
            Person(
                secret,
                caller=f"caller-{place % CALLERS}",
                tokens_max=REPLY_TOKENS if whole else numbers.randrange(1, REPLY_TOKENS),
                is_streamed=place % 4 != 2,
                stop=secret.rpartition("-")[2] if place % 8 == 5 else None,
                chunks_max=numbers.randrange(0, 4) if place % 4 == 3 else None,
            )
        )
    return people


async def talk(session: aiohttp.ClientSession, person: Person) -> Reply:
    """One request to its end, or until the person has enough."""
    headers = {"Authorization": f"Bearer {person.caller}"}
    async with session.post("/v1/chat/completions", json=person.body(), headers=headers) as response:
        assert response.status == 200, await response.text()
        if not person.is_streamed:
            choice = (await response.json())["choices"][0]
            return Reply(choice["message"]["content"], choice["finish_reason"])
        return await listen(response, person.chunks_max)


async def listen(response: aiohttp.ClientResponse, chunks_max: int | None) -> Reply:
    text, chunks = "", 0
    async for line in response.content:
        payload = line.decode().strip().removeprefix("data: ")
        if not line.startswith(b"data: ") or payload == "[DONE]":
            continue
        if chunks == chunks_max:
            break
        choice = json.loads(payload)["choices"][0]
        text += choice["delta"].get("content") or ""
        chunks += 1
        if choice["finish_reason"]:
            return Reply(text, choice["finish_reason"])
    return Reply(text, None)


async def talk_all(swarm: Swarm, people: Sequence[Person]) -> list[Reply]:
    """All at once; nobody may wait for ever."""
    connector = aiohttp.TCPConnector(limit=0)
    async with asyncio.timeout(240), aiohttp.ClientSession(swarm.http, connector=connector) as session:
        return list(await asyncio.gather(*(talk(session, person) for person in people)))


def live(swarm: Swarm) -> list[dict]:
    """Figures of every stage, as last heard."""
    return [stage.get("live", {}) for stage in get(swarm, f"/api/v1/models/{MODEL}/status")["stages"]]


def is_at_rest(stages: list[dict]) -> bool:
    """Every stage was heard of; nobody is served and nothing is held or reserved."""
    names = ("sessions", "kv_tokens_used", "kv_tokens_reserved", "waiting")
    return all(stages) and not any(int(stage.get(name, 0)) for stage in stages for name in names)


@pytest.fixture(scope="module")
def swarm(models_root, tmp_path_factory):
    options = ("--fellows", 2, "--stages", 2, "--model", MODEL, "--model-dir", models_root)
    env = {**QUICK, "SWARM_SERVE_PREFILL_CHUNK": "50"}
    with swarm_up(tmp_path_factory.mktemp("many"), *options, env=env) as swarm:
        yield swarm


async def test_sixty_four_people_hear_their_own_secret_and_no_other(swarm):
    people = make_people(random.Random(3), 64)
    before = wait_for(lambda: (stages := live(swarm)) and is_at_rest(stages) and stages, what="rest")
    replies = await talk_all(swarm, people)
    after = wait_for(lambda: (stages := live(swarm)) and is_at_rest(stages) and stages, what="rest")

    for person, reply in zip(people, replies, strict=True):
        others = [other.number for other in people if other is not person and other.number in reply.text]
        assert not others, f"{person} heard {others}: {reply.text}"
        assert (reply.finish_reason is None) <= (person.chunks_max is not None)
        if person.tokens_max == REPLY_TOKENS and person.chunks_max is None:
            assert person.secret in reply.text.casefold(), f"{person}: {reply.text}"
        if person.stop:
            assert person.stop not in reply.text
    assert sum(reply.finish_reason is not None for reply in replies) > 32
    for stage_before, stage_after in zip(before, after, strict=True):
        grown_bytes = int(stage_after["memory_bytes"]) - int(stage_before["memory_bytes"])
        assert grown_bytes <= kv_bytes(stage_after) + WORKING_BYTES
        assert int(stage_after.get("frames_refused", 0)) == 0


def kv_bytes(stage: dict) -> int:
    """What all planned positions of a stage take: keys and values of 3 heads of 64 in float32, each layer."""
    spec = stage["spec"]
    layers = int(spec["layer_stop"]) - int(spec.get("layer_start", 0))
    return int(spec["kv_tokens"]) * layers * 2 * 3 * 64 * 4
