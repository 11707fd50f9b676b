"""A leader that dies in the middle of a reply, as a user of `swarm infer` and `swarm chat` sees it."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from silentswarm.core.v1 import generation_pb2
from silentswarm.leader.v1 import inference_pb2
from swarm_core.errors import ReplyNotFound

from tests.integration.cli.scripted_leader import ScriptedLeader, serve

Event = generation_pb2.GenerationEvent
WORDS = ("The", " quick", " brown", " fox")
RUN_S = 30


def story(request_id: str, after: int) -> list[inference_pb2.GenerateEvent]:
    """A reply of four tokens, behind the events its reader has."""
    events = [Event(started=Event.Started(prompt_tokens=5, seed=99))]
    events += [Event(tokens=Event.TokenBatch(text=word, ids=[10 + at])) for at, word in enumerate(WORDS)]
    events.append(Event(done=Event.Done(finish_reason=1, prompt_tokens=5, completion_tokens=4)))
    for number, event in enumerate(events, start=1):
        event.sequence = number
    return [inference_pb2.GenerateEvent(request_id=request_id, event=event) for event in events[after:]]


@dataclass
class MortalLeader(ScriptedLeader):
    """Tells the story; the first life of it stands still after three events. is_kept: a fellow kept the reply."""

    is_first: bool = True
    is_kept: bool = True
    is_stuck: threading.Event = field(default_factory=threading.Event)
    resumes: list[inference_pb2.ResumeRequest] = field(default_factory=list)

    async def Generate(self, request, context) -> AsyncIterator[inference_pb2.GenerateEvent]:
        self.generations.append(request)
        for answer in story(request.request_id, request.generation.resume.sequence):
            if self.is_first and answer.event.sequence > 3:
                self.is_stuck.set()
                await asyncio.sleep(RUN_S)
            yield answer

    async def Resume(self, request, context) -> AsyncIterator[inference_pb2.GenerateEvent]:
        self.resumes.append(request)
        if not self.is_kept:
            raise ReplyNotFound("no fellow keeps it")
        for answer in story(request.request_id, request.after_sequence - 1):  # one that its reader has
            yield answer


@pytest.mark.parametrize("is_kept", [True, False])
@pytest.mark.parametrize("arguments", [("infer", "tiny", "Where?"), ("chat", "tiny")])
def test_a_leader_that_is_killed_and_comes_back_costs_a_pause(arguments: tuple[str, ...], is_kept: bool):
    first, second = MortalLeader(), MortalLeader(is_first=False, is_kept=is_kept)
    with serve(first):
        port = int(first.address.rpartition(":")[2])
        command = [sys.executable, "-m", "swarm_cli", *arguments, "--leader", first.address]
        asked = subprocess.Popen(command, stdin=-1, stdout=-1, stderr=-1, text=True)
        assert asked.stdin is not None
        asked.stdin.write("Where?\n")
        asked.stdin.flush()
        assert first.is_stuck.wait(RUN_S)
    with serve(second, port):
        out, err = asked.communicate(timeout=RUN_S)

    assert (asked.returncode, out) == (0, "The quick brown fox\n")
    assert err.startswith("the leader went away; the reply goes on when it is back")
    assert [each.after_sequence for each in second.resumes] == [3]
    again = [(list(each.generation.resume.ids), each.generation.sampling.seed) for each in second.generations]
    assert again == ([] if is_kept else [([10, 11], 99)])


def test_a_leader_that_was_never_there_is_told_at_once(swarm):
    ended = swarm("infer", "tiny", "Where?", SWARM_LEADER="127.0.0.1:1")

    assert ended.code == 3 and "no leader answers at 127.0.0.1:1" in ended.err
