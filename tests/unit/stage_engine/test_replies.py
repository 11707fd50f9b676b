"""Text around the engine: templates that do not end, waits for a place, stop texts, end tokens."""

import asyncio
import threading
import time
from typing import ClassVar

import pytest
from silentswarm.core.v1 import generation_pb2
from swarm_core.clock import ManualClock, SystemClock
from swarm_core.errors import DeadlinePassed, ServableCorrupt
from swarm_stage.engine.budget import KvBudget
from swarm_stage.engine.engine import Conclude, Submit
from swarm_stage.engine.inbox import Inbox
from swarm_stage.engine.reply import Admitted, Finished, Request, Tokens
from swarm_stage.serve.event_writer import EventWriter
from swarm_stage.serve.replies import Replies


class LetterCodec:
    """Letters as tokens: 0 is "a". Token 25 ends a turn. Its template takes as long as it is told."""

    end_ids = frozenset({25})
    special_ids: frozenset[int] = frozenset()
    default_sampling: ClassVar[dict[str, float]] = {}

    def __init__(self, template_s: float = 0.0) -> None:
        self._template_s = template_s

    def chat_ids(self, messages, enable_thinking=None) -> list[int]:
        time.sleep(self._template_s)
        return [1, 2, 3]

    def prompt_ids(self, text: str) -> list[int]:
        return [ord(letter) - 97 for letter in text]

    def decode(self, ids) -> str:
        return "".join(chr(97 + token) for token in ids)


def replies(codec: LetterCodec, budget: KvBudget | None = None) -> tuple[Replies, Inbox]:
    inbox = Inbox(asyncio.get_running_loop())
    return Replies(inbox, codec, 26, budget or KvBudget(100, 100), SystemClock()), inbox


async def submitted(inbox: Inbox):
    """The request that reaches the engine."""
    async with asyncio.timeout(5):
        while not (items := [item for item in inbox.take(0) if isinstance(item, Submit)]):
            await asyncio.sleep(0.005)
    return items[0].request


async def test_a_template_that_does_not_end_fails_the_load():
    service, _ = replies(LetterCodec(template_s=1.0))

    with pytest.raises(ServableCorrupt, match=r"did not end within 0\.05 s"):
        await service.check_template(timeout_s=0.05)


async def test_a_template_that_ends_passes():
    service, _ = replies(LetterCodec())
    await service.check_template(timeout_s=5)

    assert threading.active_count() < 50


async def test_what_nobody_bounded_is_bounded_by_what_the_ring_holds():
    """A ring of 40 tokens once refused every chat that set no max_tokens."""
    service, inbox = replies(LetterCodec(), KvBudget(tokens=40, context_tokens=4096))
    events = service.generate("r", generation_pb2.Generation(prompt="abc"))
    reading = asyncio.ensure_future(anext(events))
    request = await submitted(inbox)
    reading.cancel()

    assert request.new_tokens_max == 37


async def test_a_stop_text_ends_the_reply_and_what_came_after_it_is_not_counted():
    service, inbox = replies(LetterCodec())
    events = service.generate("r", generation_pb2.Generation(prompt="abc", stop=["fg"]))
    reading = asyncio.ensure_future(anext(events))
    request = await submitted(inbox)
    for note in (Admitted(3), Tokens((3, 4)), Tokens((5, 6, 7, 8))):
        request.notify(note)
    started = await reading
    rest = asyncio.ensure_future(collect(events))
    async with asyncio.timeout(5):
        while not any(isinstance(item, Conclude) for item in inbox.take(0)):
            await asyncio.sleep(0.005)
    request.notify(Finished(generation_pb2.FINISH_REASON_LENGTH, 9, generation_pb2.Timing()))
    told = await rest

    assert started.started.prompt_tokens == 3
    assert "".join(event.tokens.text for event in told) == "de"
    assert [token for event in told for token in event.tokens.ids] == [3, 4, 5, 6]
    assert told[-1].done.finish_reason == generation_pb2.FINISH_REASON_STOP
    assert told[-1].done.completion_tokens == 4


async def collect(events) -> list:
    return [event async for event in events]


async def test_the_token_that_ends_a_turn_is_counted_and_not_shown():
    service, inbox = replies(LetterCodec())
    events = service.generate("r", generation_pb2.Generation(prompt="abc"))
    reading = asyncio.ensure_future(anext(events))
    request = await submitted(inbox)
    for note in (
        Admitted(3),
        Tokens((3, 25)),
        Finished(generation_pb2.FINISH_REASON_STOP, 2, generation_pb2.Timing()),
    ):
        request.notify(note)
    told = [await reading, *[event async for event in events]]

    assert "".join(event.tokens.text for event in told) == "d"
    assert told[-1].done.completion_tokens == 2


async def test_encoding_that_takes_too_long_is_a_deadline_with_the_number():
    service, _ = replies(LetterCodec(template_s=1.0))
    chat = generation_pb2.Chat(messages=[generation_pb2.ChatMessage(role="user", content="a")])

    with pytest.raises(DeadlinePassed, match=r"0\.05 s"):
        await service._encode_in_time(generation_pb2.Generation(chat=chat), timeout_s=0.05)


def test_prompt_pieces_that_come_round_are_told_now_and_then_not_each():
    clock = ManualClock()
    request = Request("r", (1,), generation_pb2.Sampling(), 9, frozenset(), lambda note: None, 0.0)
    writer = EventWriter(None, [], request, clock)
    writer.events([Admitted(1000)])
    soon = writer.events([Tokens(())])
    clock.advance(6)
    later = writer.events([Tokens(())])

    assert soon == []
    assert len(later) == 1 and later[0].sequence == 2
