"""SmolLM2 on one stage process, asked for replies of a shape: what comes is what was asked, or was cut and says so."""

import asyncio
import json
import shutil
from pathlib import Path

import pytest
from silentswarm.core.v1 import generation_pb2, stage_pb2
from silentswarm.core.v1.generation_pb2 import (
    FINISH_REASON_LENGTH,
    FINISH_REASON_STOP,
    FINISH_REASON_TOOL_CALLS,
    TOOL_MODE_REQUIRED,
    Chat,
    ChatMessage,
    Constraint,
    Generation,
    Sampling,
    Tool,
)

from tests.e2e.conftest import MODEL
from tests.integration.ring.stages import StageRing

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "likes": {"type": "array", "items": {"enum": ["tea", "coffee"]}, "maxItems": 2},
    },
    "required": ["name", "age", "likes"],
    "additionalProperties": False,
}
WEATHER = Tool(
    name="get_weather",
    description="The weather in a city.",
    parameters='{"type": "object", "properties": {"city": {"type": "string", "maxLength": 30}}, "required": ["city"], '
    '"additionalProperties": false}',
)


@pytest.fixture
def model_dir(models_root: Path, tmp_path: Path):
    """The model as a stage wants to see it; half a gigabyte of tensors goes again afterwards."""
    folder = tmp_path / "model"
    folder.mkdir()
    for path in [*(models_root / MODEL).glob("*config.json"), *(models_root / MODEL / "base").iterdir()]:
        (folder / path.name).symlink_to(path)
    (folder / "tokenizer").symlink_to(models_root / MODEL / "tokenizer")
    yield folder
    shutil.rmtree(tmp_path / "tensors", ignore_errors=True)


def asked(question: str, new_tokens: int = 60, **fields: object) -> Generation:
    chat = Chat(messages=[ChatMessage(role="user", content=question)])
    sampling = fields.pop("sampling", Sampling(temperature=0.0))
    return Generation(chat=chat, sampling=sampling, new_tokens_max=new_tokens, **fields)


class Told:
    """A reply, put together."""

    def __init__(self, events: list[generation_pb2.GenerationEvent]) -> None:
        batches = [event.tokens for event in events]
        self.text = "".join(batch.text for batch in batches)
        self.ids = [token for batch in batches for token in batch.ids]
        self.logprobs = [each for batch in batches for each in batch.logprobs]
        self.calls: dict[int, list[str]] = {}
        for call in (call for batch in batches for call in batch.tool_calls):
            told = self.calls.setdefault(call.index, ["", ""])
            told[0] += call.name
            told[1] += call.arguments
        self.last = events[-1]

    @property
    def reason(self) -> int:
        return self.last.done.finish_reason


async def tell(ring: StageRing, name: str, generation: Generation) -> Told:
    return Told([event async for event in ring.generate(generation, name)])


async def test_a_small_model_gives_the_shapes_that_are_asked_of_it(model_dir, tmp_path):
    async with StageRing(model_dir, tmp_path, stages=1) as ring:
        await ring.wire(stage_pb2.ROUTE_LOCAL)
        await a_schema_is_followed_or_cut(ring)
        await tools_are_called(ring)
        await likelihoods_join_to_the_text(ring)
        await a_bad_grammar_ends_nobody_elses_reply(ring)

        assert (await ring.status(0)).failed == 0


async def a_schema_is_followed_or_cut(ring: StageRing) -> None:
    constraint = Constraint(json_schema=json.dumps(PERSON), strict=True)
    draws = [Sampling(temperature=0.0), *(Sampling(temperature=1.5, seed=seed) for seed in range(2))]
    replies = [
        tell(ring, f"schema {place}", asked("Describe a person.", constraint=constraint, sampling=sampling))
        for place, sampling in enumerate(draws)
    ]
    for reply in await asyncio.gather(*replies):
        assert reply.reason in (FINISH_REASON_STOP, FINISH_REASON_LENGTH), reply.last
        if reply.reason == FINISH_REASON_STOP:
            person = json.loads(reply.text)
            assert set(person) == {"name", "age", "likes"}
            assert 0 <= person["age"] <= 150 and set(person["likes"]) <= {"tea", "coffee"}
            assert reply.text == json.dumps(person, separators=(",", ":"), ensure_ascii=False) or "\\" in reply.text
    cut = await tell(ring, "cut", asked("Describe a person.", new_tokens=5, constraint=constraint))
    assert cut.reason == FINISH_REASON_LENGTH and cut.text.startswith('{"name":"')


async def tools_are_called(ring: StageRing) -> None:
    must = asked("What is the weather in Paris?")
    must.chat.tools.append(WEATHER)
    must.chat.tool_choice.mode = TOOL_MODE_REQUIRED
    must.chat.parallel_tool_calls = False
    reply = await tell(ring, "must", must)
    assert reply.reason == FINISH_REASON_TOOL_CALLS and reply.text == "", reply.last
    assert [name for name, _ in reply.calls.values()] == ["get_weather"]
    assert set(json.loads(reply.calls[0][1])) == {"city"}
    may = asked("Hello!", new_tokens=20)
    may.chat.tools.append(WEATHER)
    free = await tell(ring, "may", may)
    assert free.text or free.calls
    assert "tool_call>" not in free.text


async def likelihoods_join_to_the_text(ring: StageRing) -> None:
    question = asked("Write a line with an emoji 😀 and 漢字.", new_tokens=16)
    plain = await tell(ring, "plain", question)
    question.sampling.top_logprobs = 3
    reply = await tell(ring, "likely", question)
    assert reply.ids == plain.ids and len(reply.logprobs) == len(reply.ids)
    assert b"".join(each.token for each in reply.logprobs).decode("utf-8", "ignore") in (reply.text, reply.text[:-1])
    assert all(len(each.top) == 3 and each.top[0].logprob >= each.logprob for each in reply.logprobs)


async def a_bad_grammar_ends_nobody_elses_reply(ring: StageRing) -> None:
    long = asyncio.ensure_future(tell(ring, "long", asked("Count to one hundred.", new_tokens=40)))
    rules = "start: r0\n" + "\n".join(f"r{place}: r{place + 1}" for place in range(12_000)) + '\nr12000: "a"'
    for place, bad in enumerate((Constraint(regex="foo**"), Constraint(grammar=rules), Constraint(json_schema="[]"))):
        refused = await tell(ring, f"bad {place}", asked("Hi", constraint=bad))
        assert refused.last.failed.metadata["field"] == "constraint", refused.last
    done = await long
    assert done.reason in (FINISH_REASON_STOP, FINISH_REASON_LENGTH) and done.ids
    again = await tell(ring, "again", asked("Hi", new_tokens=4))
    assert again.ids
