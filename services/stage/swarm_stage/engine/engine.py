"""The engine thread: owns the model, takes what arrives, keeps the stage's role going. No torch of its own."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import structlog
from silentswarm.ring.v1 import ring_pb2
from swarm_core.errors import StageFailed, SwarmError

from swarm_stage.engine.first_stage import FirstStage
from swarm_stage.engine.inbox import Inbox
from swarm_stage.engine.later_stage import LaterStage
from swarm_stage.engine.reply import Broke, Request

log = structlog.get_logger()
Role = FirstStage | LaterStage


@dataclass(frozen=True)
class Arrived:
    """A batch came over the link, at arrived_s on this stage's monotonic clock."""

    batch: ring_pb2.FrameBatch
    arrived_s: float


@dataclass(frozen=True)
class Submit:
    """A reply is wanted."""

    request: Request


@dataclass(frozen=True)
class Cancel:
    """A reply is no longer wanted."""

    request_id: str


@dataclass(frozen=True)
class Conclude:
    """A reply has all it needs (a stop text came); finish it with its timing."""

    request_id: str


@dataclass(frozen=True)
class BeginEpoch:
    """The ring was wired anew."""

    epoch: int
    why: SwarmError
    kv_tokens: int | None = None
    keep_sessions: bool = False
    fresh_stages: frozenset[int] = frozenset()


@dataclass(frozen=True)
class RingBroke:
    """A link of the current epoch broke."""

    error: SwarmError


class Halt:
    """Stop the thread."""


class EngineThread(threading.Thread):
    """Builds the role on its own thread, then serves the inbox until Halt.

    build: makes the role (loads the model); runs on this thread because torch keeps a thread pool per caller.
    on_fault: called from this thread when the engine itself fails; everything in flight has been failed by then.
    on_death: called last when the thread cannot go on: nobody would empty the inbox any more.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        build: Callable[[], Role],
        on_fault: Callable[[SwarmError], None],
        on_death: Callable[[], None],
    ) -> None:
        super().__init__(name="engine", daemon=True)
        self.inbox = Inbox(loop)
        self.built: asyncio.Future[None] = loop.create_future()
        self._loop = loop
        self._build = build
        self._on_fault = on_fault
        self._on_death = on_death

    def run(self) -> None:
        try:
            role = self._build()
        except BaseException as error:
            self._loop.call_soon_threadsafe(_settle, self.built, error)
            return
        self._loop.call_soon_threadsafe(_settle, self.built, None)
        try:
            while self._serve(role):
                pass
        except BaseException as error:
            log.error("engine thread died", exc_info=error)
            self._on_death()

    def _serve(self, role: Role) -> bool:
        """One round of the inbox and the role; False after Halt."""
        for item in self.inbox.take(0 if role.has_work else role.expires_in_s, role.items_max):
            if isinstance(item, Halt):
                return False
            if isinstance(item, Arrived) and isinstance(role, LaterStage):
                ahead = [behind.batch for behind in self.inbox.ahead() if isinstance(behind, Arrived)]
                self._guarded(role, partial(role.look_ahead, ahead))
            self._guarded(role, partial(_dispatch, role, item))
        if role.has_work:
            self._guarded(role, role.turn)
        role.expire()
        role.refresh_counters()
        return True

    def _guarded(self, role: Role, act: Callable[[], Any]) -> None:
        """Run one act; a failure that is not one session's fails them all and is told, but the thread lives."""
        try:
            act()
        except Exception as error:
            log.error("engine failed", exc_info=error)
            failure = StageFailed(f"the engine failed: {type(error).__name__}: {error}")
            role.fail_all(failure)
            self._on_fault(failure)


def _dispatch(role: Role, item: Any) -> None:
    if isinstance(item, Arrived):
        role.on_batch(item.batch, item.arrived_s)
    elif isinstance(item, BeginEpoch):
        role.begin_epoch(item.epoch, item.why, item.keep_sessions, item.fresh_stages)
        role.limit_kv(item.kv_tokens)
    elif isinstance(item, RingBroke):
        role.break_off(item.error)
    elif isinstance(role, FirstStage) and isinstance(item, Submit):
        role.submit(item.request)
    elif isinstance(role, FirstStage) and isinstance(item, Cancel):
        role.cancel(item.request_id)
    elif isinstance(role, FirstStage) and isinstance(item, Conclude):
        role.conclude(item.request_id)
    elif isinstance(item, Submit):
        item.request.notify(Broke(StageFailed("only stage 0 takes requests")))


def _settle(future: asyncio.Future[None], error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
