"""A leader that dies in the middle of replies: their readers see a pause, or in the end one clear error."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from silentswarm.core.v1 import generation_pb2
from silentswarm.leader.v1 import inference_pb2
from swarm_core.errors import Reason, RemoteError, Unavailable

from tests.integration.gateway.conftest import Running
from tests.integration.gateway.scripted_leader import ScriptedLeader, queued, start_leader

Event = generation_pb2.GenerationEvent
WORDS = ("The", " quick", " brown", " fox", " jumps")
TEXT = "".join(WORDS) + "!"


def story() -> list[Event]:
    """A reply of five tokens and a last character that comes without one."""
    batches = [Event.TokenBatch(text=word, ids=[10 + at]) for at, word in enumerate(WORDS)]
    events = [Event(started=Event.Started(prompt_tokens=7, seed=99))]
    events += [Event(tokens=batch) for batch in (*batches, Event.TokenBatch(text="!"))]
    events.append(Event(done=Event.Done(finish_reason=1, prompt_tokens=7, completion_tokens=5)))
    for sequence, event in enumerate(events, start=1):
        event.sequence = sequence
    return events


class MortalLeader:
    """A leader that tells the story, and stops in the middle of it until it is killed."""

    def __init__(self, stops_after: int) -> None:
        self.scripted = ScriptedLeader()
        self.scripted.scripts["tiny"] = self.tell
        self.stops_after = stops_after
        self.stuck = 0
        self.server: grpc.aio.Server | None = None
        self.port = 0

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Listen, on the port it had."""
        self.server, self.port = await start_leader(self.scripted, self.port)

    async def kill(self) -> None:
        """Every call breaks."""
        assert self.server is not None
        server, self.server = self.server, None
        await server.stop(None)

    async def restart_when(self, stuck: int = 1) -> None:
        """Be killed once so many replies stand still, and come back to tell the whole story."""
        await self.until_stuck(stuck)
        await self.kill()
        self.stops_after = 1000
        await self.start()

    async def until_stuck(self, count: int = 1) -> None:
        """So many replies stand still."""
        async with asyncio.timeout(10):
            while self.stuck < count:
                await asyncio.sleep(0.02)

    async def tell(self, request: inference_pb2.GenerateRequest) -> AsyncIterator[Event]:
        """From where its caller has it."""
        for event in story()[request.generation.resume.sequence :]:
            if event.sequence > self.stops_after:
                self.stuck += 1
                await asyncio.sleep(30)
            yield event
        if self.stops_after == 0:
            await asyncio.sleep(30)


async def keep(request: inference_pb2.ResumeRequest) -> AsyncIterator[Event]:
    """What a fellow kept, with one event that the caller has."""
    for event in story()[request.after_sequence - 1 :]:
        yield event


@pytest.fixture
async def mortal() -> AsyncIterator[MortalLeader]:
    """One that stops after three events."""
    leader = MortalLeader(stops_after=3)
    await leader.start()
    yield leader
    if leader.server is not None:
        await leader.server.stop(None)


def chunks_of(stream: str) -> list[dict[str, Any]]:
    """The events of a stream, without its end."""
    lines = [line.removeprefix("data: ") for line in stream.splitlines() if line.startswith("data: ")]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def text_of(stream: str, choice: int = 0) -> str:
    """What a client puts together."""
    choices = [each for chunk in chunks_of(stream) for each in chunk["choices"] if each["index"] == choice]
    return "".join(each["delta"].get("content") or "" for each in choices)


async def chat(gateway: Running, **fields: Any) -> tuple[int, Any]:
    """A chat with its usage."""
    options = {"stream_options": {"include_usage": True}} if fields.get("stream") else {}
    status, body, _ = await gateway.chat(**options, **fields)
    return status, body


async def test_a_stream_goes_on_with_what_its_fellow_kept(start_gateway, mortal):
    gateway = await start_gateway(mortal.address)
    mortal.scripted.kept = keep
    restarting = asyncio.create_task(mortal.restart_when())

    status, stream = await chat(gateway, stream=True)
    await restarting

    assert (status, text_of(stream)) == (200, TEXT)
    assert chunks_of(stream)[-1]["usage"]["completion_tokens"] == 5
    (first,) = mortal.scripted.asked
    assert mortal.scripted.resumed == [inference_pb2.ResumeRequest(request_id=first.request_id, after_sequence=3)]


async def test_what_nobody_kept_is_asked_for_again_from_its_tokens(start_gateway, mortal):
    gateway = await start_gateway(mortal.address)
    restarting = asyncio.create_task(mortal.restart_when())

    status, stream = await chat(gateway, stream=True)
    await restarting

    assert (status, text_of(stream)) == (200, TEXT)
    assert chunks_of(stream)[-1]["usage"]["completion_tokens"] == 5
    first, second = mortal.scripted.asked
    assert second.request_id == first.request_id
    assert second.generation.resume == generation_pb2.ReplyResume(ids=[10, 11], sequence=3)
    assert second.generation.sampling.seed == 99
    assert not first.generation.HasField("resume")


async def test_the_last_text_is_not_asked_for_again(start_gateway, mortal):
    gateway = await start_gateway(mortal.address)
    mortal.stops_after = 7
    restarting = asyncio.create_task(mortal.restart_when())

    status, stream = await chat(gateway, stream=True)
    await restarting

    assert (status, text_of(stream)) == (200, TEXT)
    resume = mortal.scripted.asked[1].generation.resume
    assert (list(resume.ids), resume.sequence, resume.is_flushed) == ([10, 11, 12, 13, 14], 7, True)


@pytest.mark.parametrize("stops_after", [0, 3])
async def test_a_whole_reply_survives_too(start_gateway, mortal, stops_after):
    gateway = await start_gateway(mortal.address)
    mortal.stops_after = stops_after
    restarting = asyncio.create_task(mortal.restart_when())

    status, document = await chat(gateway)
    await restarting

    assert (status, document["choices"][0]["message"]["content"]) == (200, TEXT)
    assert document["usage"] == {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}
    first, second = mortal.scripted.asked
    assert second.generation.HasField("resume") == (stops_after > 0)
    assert (len(mortal.scripted.resumed) > 0) == (stops_after > 0)
    if not stops_after:
        assert second == first


async def test_each_of_several_choices_goes_on(start_gateway, mortal):
    gateway = await start_gateway(mortal.address)
    restarting = asyncio.create_task(mortal.restart_when(stuck=2))

    status, stream = await chat(gateway, stream=True, n=2)
    await restarting

    assert [status, text_of(stream, 0), text_of(stream, 1)] == [200, TEXT, TEXT]
    assert len({asked.request_id for asked in mortal.scripted.asked}) == 2
    assert chunks_of(stream)[-1]["usage"]["completion_tokens"] == 10


async def test_a_reply_with_a_key_goes_on_for_all_its_readers(start_gateway, mortal):
    gateway = await start_gateway(mortal.address)
    body = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "stream": True}

    async def read() -> str:
        headers = {"Idempotency-Key": "one"}
        async with gateway.client.post(gateway.url + "/v1/chat/completions", json=body, headers=headers) as response:
            return await response.text()

    reading = [asyncio.create_task(read()) for _ in range(2)]
    await mortal.restart_when()

    assert [text_of(stream) for stream in await asyncio.gather(*reading)] == [TEXT, TEXT]
    assert text_of(await read()) == TEXT


async def test_a_leader_that_says_that_it_stops_is_waited_for(start_gateway, mortal):
    gateway = await start_gateway(mortal.address)
    told = 0

    async def stops(request: inference_pb2.GenerateRequest) -> AsyncIterator[Event]:
        nonlocal told
        told += 1
        for event in story()[request.generation.resume.sequence :]:
            if told == 1 and event.sequence == 4:
                raise Unavailable("the leader is stopping")
            yield event

    mortal.scripted.scripts["tiny"] = stops
    status, stream = await chat(gateway, stream=True)

    assert (status, text_of(stream), told) == (200, TEXT, 2)


async def test_a_leader_that_does_not_come_back_costs_one_clear_error(start_gateway, mortal):
    gateway = await start_gateway(mortal.address, resume_s=0.5)

    async def ask() -> str:
        _, stream, _ = await gateway.chat(stream=True)
        return stream

    asking = asyncio.create_task(ask())
    await mortal.until_stuck()
    await mortal.kill()
    lines = [line.removeprefix("data: ") for line in (await asking).splitlines() if line.startswith("data: ")]

    errors = [json.loads(line)["error"] for line in lines if '"error"' in line]
    assert len(errors) == 1
    assert "does not answer" in errors[0]["message"] or "Cancelling" in errors[0]["message"]
    assert '"error"' in lines[-1] or lines[-1] == "[DONE]"


async def test_a_failure_of_the_reply_itself_is_told_at_once_also_after_a_restart(start_gateway, mortal):
    gateway = await start_gateway(mortal.address)

    async def fail(request: inference_pb2.ResumeRequest) -> AsyncIterator[Event]:
        raise RemoteError(Reason.CONTEXT_TOO_LONG, "it grew too long")
        yield

    mortal.scripted.kept = fail
    restarting = asyncio.create_task(mortal.restart_when())
    _, stream, _ = await gateway.chat(stream=True)
    await restarting

    assert "it grew too long" in stream
    assert len(mortal.scripted.asked) == 1


async def test_without_a_time_to_resume_the_reply_breaks_as_it_did(start_gateway, mortal):
    gateway = await start_gateway(mortal.address, resume_s=0)
    restarting = asyncio.create_task(mortal.restart_when())

    _, stream, _ = await gateway.chat(stream=True)
    await restarting

    assert '"error"' in stream
    assert (len(mortal.scripted.asked), mortal.scripted.resumed) == (1, [])


async def test_one_that_only_waited_is_asked_for_as_it_was(start_gateway, mortal):
    gateway = await start_gateway(mortal.address)
    told = 0

    async def wait(request: inference_pb2.GenerateRequest) -> AsyncIterator[Event]:
        nonlocal told
        told += 1
        yield queued(1)
        if told == 1:
            mortal.stuck += 1
            await asyncio.sleep(30)
        for event in story():
            yield event

    mortal.scripted.scripts["tiny"] = wait
    restarting = asyncio.create_task(mortal.restart_when())
    status, stream = await chat(gateway, stream=True)
    await restarting

    first, second = mortal.scripted.asked
    assert (status, text_of(stream)) == (200, TEXT)
    assert first == second


CHAT = {"messages": [{"role": "user", "content": "hi"}]}
EVERY_REPLY = {
    "/v1/chat/completions": CHAT,
    "/api/v1/chat/completions": CHAT,
    "/v1/completions": {"prompt": "hi"},
    "/v1/responses": {"input": "hi"},
}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("path", EVERY_REPLY)
async def test_every_endpoint_that_makes_a_reply_tells_it_whole_over_a_restart(
    start_gateway, mortal, path: str, streamed: bool
):
    gateway = await start_gateway(mortal.address)
    body = {"model": "tiny", "stream": streamed, **EVERY_REPLY[path]}

    async def ask() -> tuple[int, str]:
        async with gateway.client.post(gateway.url + path, json=body) as response:
            return response.status, await response.text()

    restarting = asyncio.create_task(mortal.restart_when())
    status, disturbed = await ask()
    await restarting
    _, undisturbed = await ask()

    assert (status, len(mortal.scripted.asked), len(mortal.scripted.resumed) > 0) == (200, 3, True)
    assert [texts_of(disturbed), '"error":{' in disturbed] == [texts_of(undisturbed), False]
    assert TEXT in "".join(texts_of(disturbed))


def texts_of(answer: str) -> list[str]:
    """Every string of text in an answer, in order: of its document, or of those of its stream."""
    lines = [line.removeprefix("data: ") for line in answer.splitlines() if line.startswith("data: {")] or [answer]

    def walk(value: Any, key: str) -> list[str]:
        if isinstance(value, dict):
            return [text for name, each in value.items() for text in walk(each, name)]
        if isinstance(value, list):
            return [text for each in value for text in walk(each, key)]
        return [value] if isinstance(value, str) and key in ("content", "text", "delta") else []

    return [text for line in lines for text in walk(json.loads(line), "")]
