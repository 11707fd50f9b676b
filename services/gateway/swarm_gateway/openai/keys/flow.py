"""Replies with an Idempotency-Key: begun once, told to everyone who asks with the key. Reads no HTTP."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass

import structlog

from swarm_gateway.openai.keys.table import Entry, KeyLimits, KeyTable, Name
from swarm_gateway.openai.keys.tape import Tape
from swarm_gateway.openai.replies.pieces import Piece, ReplyBroke
from swarm_gateway.problems import HttpProblem, Problem

log = structlog.get_logger()
Pieces = AsyncGenerator[Piece, None]


@dataclass
class _Run:
    """A reply that runs. leaving: when it is given up, unless somebody reads it then."""

    task: asyncio.Task[None]
    leaving: asyncio.TimerHandle


class KeyedReplies:
    """Each runs in a task of its own, so that it outlives the readers it loses for as long as the grace lasts.

    now_s: a clock that only grows.
    """

    def __init__(self, now_s: Callable[[], float], limits: KeyLimits | None = None) -> None:
        self._limits = limits or KeyLimits()
        self._now_s = now_s
        self._table = KeyTable(self._limits)
        self._runs: dict[Name, _Run] = {}

    def follow(self, caller: str, key: str, fingerprint: bytes, begin: Callable[[], Pieces]) -> tuple[Pieces, bool]:
        """The reply to this key from its beginning, and whether it was asked for before.

        begin: makes the pieces when the key is new. Raises HttpProblem 409 and 429 as the table does.
        """
        entry = self._table.find((caller, key), fingerprint, self._now_s())
        if entry is not None:
            self._start_grace(entry)
            return self._read(entry), True
        entry = self._table.add((caller, key), fingerprint, Tape())
        task = asyncio.create_task(self._run(entry, begin()))
        self._runs[entry.name] = _Run(task, self._grace(entry, task))
        return self._read(entry), False

    async def _read(self, entry: Entry) -> Pieces:
        try:
            async with aclosing(entry.tape.read()) as pieces:
                async for piece in pieces:
                    yield piece
        finally:
            self._start_grace(entry)

    def _start_grace(self, entry: Entry) -> None:
        """From now on. Also for a reader who comes: it may leave before it reads anything."""
        run = self._runs.get(entry.name)
        if run is not None:
            run.leaving.cancel()
            run.leaving = self._grace(entry, run.task)

    def _grace(self, entry: Entry, task: asyncio.Task[None]) -> asyncio.TimerHandle:
        def give_up() -> None:
            if not entry.tape.reader_count:
                task.cancel()

        return asyncio.get_running_loop().call_later(self._limits.grace_s, give_up)

    async def _run(self, entry: Entry, pieces: Pieces) -> None:
        tape = entry.tape
        failure: Exception | None = None
        try:
            async with aclosing(pieces):
                async for piece in pieces:
                    if piece.frames and not tape.is_spent and not self._table.grow(entry, len(piece.frames)):
                        tape.spend()
                        self._table.spend(entry)
                    await tape.write(piece)
        except ReplyBroke as broke:
            failure = broke
        except asyncio.CancelledError:
            failure = _given_up()
            raise
        except Exception as error:
            log.error("keyed reply failed", exc_info=error)
            failure = error
        finally:
            self._runs.pop(entry.name).leaving.cancel()
            if failure is None:
                self._table.end(entry, self._now_s())
            else:  # not kept: asked for again, it may well succeed
                self._table.drop(entry)
            tape.end(failure)


def _given_up() -> ReplyBroke:
    words = "the reply was given up: nobody read it"
    return ReplyBroke(HttpProblem(Problem(503, words, "cancelled", headers={"Retry-After": "1"})), b"")
