"""Text around the engine: templates that do not end, waits for a place, stop texts, end tokens."""

import asyncio
import threading
import time
from typing import ClassVar

import pytest
from silentswarm.core.v1 import generation_pb2
from swarm_core.clock import ManualClock, SystemClock
from swarm_core.errors import BadRequest, DeadlinePassed, ServableCorrupt
from swarm_stage.engine.budget import KvBudget
from swarm_stage.engine.engine import Conclude, Submit
from swarm_stage.engine.inbox import Inbox
from swarm_stage.engine.reply import Admitted, Finished, Request, Tokens, Waiting
from swarm_stage.serve.event_writer import EventWriter
from swarm_stage.serve.replies import Replies
from swarm_stage.text.codec import ChatPrompt
from swarm_stage.text.reply_shape import PLAIN


class LetterCodec:
    """Letters as tokens: 0 is "a". Token 25 ends a turn. Its template takes as long as it is told."""

    end_ids = frozenset({25})
    special_ids: frozenset[int] = frozenset()
    default_sampling: ClassVar[dict[str, float]] = {}

    def __init__(self, template_s: float = 0.0) -> None:
        self._template_s = template_s

    def chat_prompt(self, chat) -> ChatPrompt:
        time.sleep(self._template_s)
        return ChatPrompt([1, 2, 3], PLAIN)

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


async def test_an_end_that_the_model_cannot_draw_is_no_end():
    """Tokenizers name tokens that the head has no row for; holding one back would be refused by the last stage."""
    codec = LetterCodec()
    codec.end_ids = frozenset({25, 26, 1000})
    service, inbox = replies(codec)
    reading = asyncio.ensure_future(anext(service.generate("r", generation_pb2.Generation(prompt="abc"))))
    request = await submitted(inbox)
    reading.cancel()

    assert request.end_ids == {25}


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


async def test_one_that_waits_is_told_its_place_in_events_that_take_no_number():
    service, inbox = replies(LetterCodec())
    events = service.generate("r", generation_pb2.Generation(prompt="abc"))
    reading = asyncio.ensure_future(anext(events))
    request = await submitted(inbox)
    request.notify(Waiting(2, "8 of 8 places are taken"))
    first = await reading
    for note in (
        Waiting(1, "8 of 8 places are taken"),
        Admitted(3),
        Tokens((3,)),
        Finished(generation_pb2.FINISH_REASON_LENGTH, 1, generation_pb2.Timing()),
    ):
        request.notify(note)
    told = await collect(events)

    assert (first.sequence, first.queued.position, first.queued.reason) == (0, 2, "8 of 8 places are taken")
    assert [event.sequence for event in told] == [1, 2, 3]  # a place that is out of date is not told
    assert told[0].HasField("started")


async def test_stop_texts_are_not_looked_for_before_the_minimum():
    service, inbox = replies(LetterCodec())
    asked = generation_pb2.Generation(prompt="abc", stop=["fg"], new_tokens_min=4, new_tokens_max=9)
    events = service.generate("r", asked)
    reading = asyncio.ensure_future(anext(events))
    request = await submitted(inbox)
    request.notify(Admitted(3))
    await reading
    request.notify(Tokens((5, 6, 5, 6)))  # fgfg
    kept = await anext(events)
    request.notify(Tokens((5, 6)))
    rest = asyncio.ensure_future(collect(events))
    async with asyncio.timeout(5):
        while not any(isinstance(item, Conclude) for item in inbox.take(0)):
            await asyncio.sleep(0.005)
    request.notify(Finished(generation_pb2.FINISH_REASON_LENGTH, 7, generation_pb2.Timing()))

    assert kept.tokens.text == "fgfg"
    assert (await rest)[-1].done.completion_tokens == 6
    assert request.new_tokens_min == 4


async def test_a_minimum_above_the_maximum_is_refused_with_both_numbers():
    service, _ = replies(LetterCodec())

    with pytest.raises(BadRequest, match=r"new_tokens_min is 9; .* new_tokens_max, 5") as refusal:
        await anext(service.generate("r", generation_pb2.Generation(prompt="abc", new_tokens_min=9, new_tokens_max=5)))
    assert refusal.value.facts["field"] == "new_tokens_min"


async def test_a_minimum_lifts_the_default_maximum():
    service, inbox = replies(LetterCodec(), KvBudget(9000, 9000))
    reading = asyncio.ensure_future(
        anext(service.generate("r", generation_pb2.Generation(prompt="a", new_tokens_min=2000)))
    )
    request = await submitted(inbox)
    reading.cancel()

    assert request.new_tokens_max == 2000


async def test_whose_request_it_is_and_how_much_they_weigh_reaches_the_engine():
    service, inbox = replies(LetterCodec())
    told = []
    for weight in (2.0, 0.0, -1.0, float("inf"), float("nan")):
        asked = generation_pb2.Generation(prompt="a", caller="ann", caller_weight=weight)
        reading = asyncio.ensure_future(anext(service.generate("r", asked)))
        request = await submitted(inbox)
        reading.cancel()
        told.append((request.caller, request.caller_weight))

    assert told == [("ann", 2.0)] + [("ann", 1.0)] * 4


async def test_the_end_says_what_text_and_tokeniser_took_and_the_whole_time():
    clock = ManualClock()

    class SlowCodec(LetterCodec):
        def decode(self, ids) -> str:
            clock.advance(0.001)
            return super().decode(ids)

    request = Request("r", (1,), generation_pb2.Sampling(), 9, frozenset(), lambda note: None, 1000.0, tokenize_ms=7.0)
    writer = EventWriter(SlowCodec(), [], request, clock)
    clock.advance(0.5)
    writer.events([Admitted(1), Tokens((1, 2, 3))])
    done = writer.events([Finished(generation_pb2.FINISH_REASON_LENGTH, 3, generation_pb2.Timing(queue_ms=9))])[-1].done

    assert done.timing.queue_ms == 9 and done.timing.tokenize_ms == 7.0
    assert (
        done.timing.detokenize_ms == pytest.approx((clock.monotonic_s() - 1000.5) * 1e3)
        and done.timing.detokenize_ms > 0
    )
    assert done.timing.total_ms == pytest.approx((clock.monotonic_s() - 1000) * 1e3)


async def test_notes_of_one_step_to_many_replies_wake_the_loop_once_and_keep_their_order():
    service, inbox = replies(LetterCodec())
    requests, reading = [], []
    for name in "ab":
        events = service.generate(name, generation_pb2.Generation(prompt="abc"))
        reading.append(asyncio.ensure_future(collect(events)))
        requests.append(await submitted(inbox))

    def from_the_engine() -> None:
        for token in range(200):
            for request in requests:
                request.notify(Admitted(3) if not token else Tokens((token % 25,)))
        for request in requests:
            request.notify(Finished(generation_pb2.FINISH_REASON_LENGTH, 199, generation_pb2.Timing()))

    await asyncio.to_thread(from_the_engine)
    async with asyncio.timeout(5):
        told = await asyncio.gather(*reading)

    for events in told:
        assert [token for event in events for token in event.tokens.ids] == [token % 25 for token in range(1, 200)]
