"""Bounds of what is kept for keys: entries, bytes, time, and how long a reply goes on that nobody reads."""

import asyncio
from contextlib import aclosing

import pytest
from swarm_gateway.openai.keys.flow import KeyedReplies
from swarm_gateway.openai.keys.table import KeyLimits
from swarm_gateway.openai.keys.tape import AHEAD_BYTES_MAX
from swarm_gateway.openai.replies.pieces import Piece, ReplyBroke
from swarm_gateway.problems import HttpProblem, bad_request


class Made:
    """Replies of our own, and how many were begun, written and given up."""

    def __init__(self) -> None:
        self.begun = self.written = self.given_up = 0
        self.go_on = asyncio.Event()

    def reply(self, *frames: bytes, wait_after: int | None = None):
        """Makes a reply of these frames, which waits for go_on after some of them."""

        async def pieces():
            self.begun += 1
            try:
                for at, frame in enumerate(frames):
                    if at == wait_after:
                        await self.go_on.wait()
                    self.written += 1
                    yield Piece(frame)
            except (GeneratorExit, asyncio.CancelledError):
                self.given_up += 1
                raise

        return pieces


async def text_of(pieces) -> bytes:
    """Everything of a reply."""
    async with aclosing(pieces):
        return b"".join([piece.frames async for piece in pieces])


async def ask(keyed: KeyedReplies, key: str, begin, fingerprint: bytes = b"f") -> bytes:
    """The whole reply to a key."""
    return await text_of(keyed.follow("anna", key, fingerprint, begin)[0])


async def test_a_reply_is_kept_for_its_time_and_no_longer():
    now_s, made = [100.0], Made()
    keyed = KeyedReplies(lambda: now_s[0], KeyLimits(kept_s=600))
    await ask(keyed, "k", made.reply(b"a"))
    now_s[0] += 600
    await ask(keyed, "k", made.reply(b"a"))
    kept = made.begun
    now_s[0] += 1
    await ask(keyed, "k", made.reply(b"a"))

    assert (kept, made.begun) == (1, 2)


async def test_more_keys_than_there_are_places_push_out_the_oldest():
    made = Made()
    keyed = KeyedReplies(lambda: 0.0, KeyLimits(entries_max=2))
    for key in ("k1", "k2", "k3"):
        await ask(keyed, key, made.reply(b"a"))
    await ask(keyed, "k3", made.reply(b"a"))
    kept = made.begun
    await ask(keyed, "k1", made.reply(b"a"))

    assert (kept, made.begun) == (3, 4)


async def test_replies_that_run_are_never_pushed_out():
    made = Made()
    keyed = KeyedReplies(lambda: 0.0, KeyLimits(entries_max=1))
    running = asyncio.create_task(ask(keyed, "k1", made.reply(b"a", b"b", wait_after=1)))
    await asyncio.sleep(0)
    with pytest.raises(HttpProblem) as full:
        keyed.follow("anna", "k2", b"f", made.reply(b"x"))
    made.go_on.set()

    assert full.value.problem.status == 429 and full.value.problem.headers["Retry-After"]
    assert await running == b"ab"


async def test_replies_beyond_the_bytes_push_out_the_oldest():
    made = Made()
    keyed = KeyedReplies(lambda: 0.0, KeyLimits(bytes_max=25))
    for key in ("k1", "k2", "k3"):
        await ask(keyed, key, made.reply(b"x" * 10))
    await ask(keyed, "k2", made.reply(b"x" * 10))
    kept = made.begun
    await ask(keyed, "k1", made.reply(b"x" * 10))

    assert (kept, made.begun) == (3, 4)


async def test_a_reply_too_large_to_keep_reaches_its_reader_and_is_not_told_again():
    made = Made()
    keyed = KeyedReplies(lambda: 0.0, KeyLimits(reply_bytes_max=25))
    text = await ask(keyed, "k", made.reply(*[b"x" * 10] * 9))
    with pytest.raises(HttpProblem) as again:
        keyed.follow("anna", "k", b"f", made.reply(b"x"))

    assert text == b"x" * 90
    assert (again.value.problem.status, again.value.problem.code) == (409, "idempotency_reply_too_large")
    assert made.begun == 1


async def test_a_slow_reader_of_a_large_reply_slows_its_making():
    made = Made()
    keyed = KeyedReplies(lambda: 0.0, KeyLimits(reply_bytes_max=10))
    frames = [b"x" * (AHEAD_BYTES_MAX // 4)] * 50
    pieces, _ = keyed.follow("anna", "k", b"f", made.reply(*frames))
    first = await anext(pieces)
    for _ in range(100):
        await asyncio.sleep(0)
    ahead = made.written

    assert ahead < 10
    assert len(first.frames + await text_of(pieces)) == len(frames) * len(frames[0])


async def test_a_reply_nobody_reads_is_given_up_after_the_grace_and_its_key_is_free():
    made = Made()
    keyed = KeyedReplies(lambda: 0.0, KeyLimits(grace_s=0.05))
    pieces, _ = keyed.follow("anna", "k", b"f", made.reply(b"a", b"b", wait_after=1))
    await anext(pieces)
    await pieces.aclose()
    async with asyncio.timeout(5):
        while not made.given_up:
            await asyncio.sleep(0.01)
    made.go_on.set()

    assert await ask(keyed, "k", made.reply(b"a", b"b")) == b"ab"
    assert made.begun == 2


async def test_a_reply_whose_reader_never_began_is_given_up_too():
    made = Made()
    keyed = KeyedReplies(lambda: 0.0, KeyLimits(grace_s=0.05))
    pieces, _ = keyed.follow("anna", "k", b"f", made.reply(b"a", b"b", wait_after=1))
    await pieces.aclose()

    async with asyncio.timeout(5):
        while not made.given_up:
            await asyncio.sleep(0.01)
    assert made.given_up == 1


async def test_every_reader_hears_of_a_failure_and_the_next_begins_anew():
    made = Made()

    async def breaks():
        yield Piece(b"half")
        await made.go_on.wait()
        raise ReplyBroke(bad_request("no"), b"last words")

    keyed = KeyedReplies(lambda: 0.0)
    readers = [keyed.follow("anna", "k", b"f", breaks)[0] for _ in range(2)]
    halves = [await anext(reader) for reader in readers]
    made.go_on.set()
    for reader in readers:
        with pytest.raises(ReplyBroke):
            await anext(reader)

    assert [half.frames for half in halves] == [b"half", b"half"]
    assert await ask(keyed, "k", made.reply(b"a")) == b"a"


async def test_where_a_request_stands_is_told_while_there_is_nothing_else():
    made = Made()

    async def begin():
        yield Piece(standing="waiting, position 1")
        await made.go_on.wait()
        yield Piece(b"text")

    keyed = KeyedReplies(lambda: 0.0)
    pieces, _ = keyed.follow("anna", "k", b"f", begin)
    first = await anext(pieces)
    made.go_on.set()

    assert first.standing == "waiting, position 1"
    assert await text_of(pieces) == b"text"


async def test_a_wait_that_is_over_is_not_told_to_who_reads_later():
    made = Made()

    async def begin():
        yield Piece(b"half")
        yield Piece(standing="waiting, position 1: the ring broke")
        await made.go_on.wait()
        yield Piece(b" and half")

    keyed = KeyedReplies(lambda: 0.0)
    pieces, _ = keyed.follow("anna", "k", b"f", begin)
    during = [await anext(pieces), await anext(pieces)]
    made.go_on.set()
    after = [piece async for piece in pieces]
    later, _ = keyed.follow("anna", "k", b"f", begin)

    assert [piece.standing for piece in during] == ["", "waiting, position 1: the ring broke"]
    assert [piece async for piece in later] == [Piece(b"half and half")] and after == [Piece(b" and half")]
