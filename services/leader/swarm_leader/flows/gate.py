"""Where replies wait for a place in a model's ring, and hear how they stand. The order and the bounds are domain's."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from swarm_core.clock import Clock
from swarm_core.errors import Cancelled, Overloaded, SwarmError

from swarm_leader.domain.admission import AdmissionQueue
from swarm_leader.domain.pace import Pace

TELL_S = 1.0  # a caller hears of a new position at most this often; core.v1.GenerationEvent.Queued


@dataclass(frozen=True)
class Standing:
    """Where a request stands. position: 1 starts next. reason: what it waits for, for people."""

    position: int
    reason: str


class Turn:
    """One request's way through the gate: it waits, has a place, or was turned away. Read by one caller."""

    def __init__(self, gate: "Gate", request_id: str) -> None:
        self.request_id = request_id
        self._gate = gate
        self._has_place = False
        self._refusal: SwarmError | None = None
        self._wake = asyncio.Event()
        self._told = 0
        self._told_s = float("-inf")

    @property
    def has_place(self) -> bool:
        """It was let in."""
        return self._has_place

    @property
    def is_waiting(self) -> bool:
        """Neither has a place nor was turned away."""
        return not self._has_place and self._refusal is None

    async def next(self) -> Standing | None:
        """How it stands, when it begins to wait and when its position changed; None once it has a place.

        The caller has the deadline. Raises what turned it away.
        """
        loop = asyncio.get_running_loop()
        while self.is_waiting:
            self._wake.clear()
            standing = self._gate.standing_of(self)
            again_s = self._told_s + TELL_S
            if standing.position != self._told and loop.time() >= again_s:
                self._told, self._told_s = standing.position, loop.time()
                return standing
            with suppress(TimeoutError):
                async with asyncio.timeout_at(again_s if standing.position != self._told else None):
                    await self._wake.wait()
        if self._refusal is not None:
            raise self._refusal
        return None

    def start(self) -> None:
        """It has a place."""
        self._has_place = True
        self._wake.set()

    def turn_away(self, why: SwarmError) -> None:
        """It will get no place; one that has a place keeps it."""
        if self.is_waiting:
            self._refusal = why
            self._wake.set()

    def abandon(self) -> None:
        """Nobody wants it any more; others may have its place, also in the queue, at once."""
        if self.is_waiting:
            self.turn_away(Cancelled("the caller went away"))
            self._gate.leave(self)

    def hold(self, is_held: bool) -> None:
        """It has a place, but stage 0 has no room for it yet: those at the gate start after it."""
        self._gate.hold(self, is_held)

    def wake(self) -> None:
        """Its position may have changed."""
        self._wake.set()


class Gate:
    """One model's gate."""

    def __init__(self, waiting_max: int, clock: Clock) -> None:
        self._queue = AdmissionQueue(waiting_max)
        self._waiting_max = waiting_max
        self._awaiting_load = 0
        self._clock = clock
        self._pace = Pace(clock.monotonic_s())
        self._turns: dict[str, Turn] = {}
        self._held: set[str] = set()

    @property
    def running(self) -> int:
        """Replies that run now; one that has a place and waits for room at stage 0 does not."""
        return self._queue.running - len(self._held)

    @property
    def waiting(self) -> int:
        """Replies that wait now, here, at stage 0, or for the model to load again."""
        return self._queue.waiting + len(self._held) + self._awaiting_load

    @contextmanager
    def load_awaited(self) -> Iterator[Standing]:
        """A request waits before the gate while the block runs: an idle model loads again. Gives how it stands.

        Raises Overloaded when too many do.
        """
        waiting = self._awaiting_load
        if waiting >= self._waiting_max:
            raise Overloaded(
                f"{waiting} requests wait for this model to load again, which is as many as may; try again soon",
                waiting=waiting,
                waiting_max=self._waiting_max,
            )
        self._awaiting_load += 1
        try:
            yield Standing(self._awaiting_load, "the model was idle and loads again")
        finally:
            self._awaiting_load -= 1

    @contextmanager
    def turn(self, request_id: str, caller: str, weight: float, running_max: int) -> Iterator[Turn]:
        """Queue a request, and keep its place while the block runs.

        caller, weight: whose request it is and that caller's share. Raises Overloaded when too many wait.
        """
        turn = Turn(self, request_id)
        try:
            self._open(self._queue.set_running_max(running_max))
            retry_after_s = self._pace.retry_after_s(self._queue.waiting, self._clock.monotonic_s())
            self._turns[request_id] = turn
            self._open(self._queue.ask(request_id, caller, weight, retry_after_s))
            yield turn
        finally:
            self._held.discard(request_id)
            if turn.has_place:
                self._pace.note(self._clock.monotonic_s())
            self.leave(turn)

    def leave(self, turn: Turn) -> None:
        """A request is over or not wanted. Harmless when it left before."""
        if self._turns.pop(turn.request_id, None) is not None:
            self._open(self._queue.release(turn.request_id))

    def hold(self, turn: Turn, is_held: bool) -> None:
        """Stage 0 has no room for a request that has a place, or has it now."""
        if is_held == (turn.request_id in self._held):
            return
        (self._held.add if is_held else self._held.discard)(turn.request_id)
        self._open([])

    def standing_of(self, turn: Turn) -> Standing:
        """How a waiting request stands now."""
        taken, places = self._queue.running, self._queue.running_max
        position = len(self._held) + self._queue.positions()[turn.request_id]
        only = "the one place in this ring is taken"
        return Standing(position, only if places == 1 else f"{taken} of {places} places in this ring are taken")

    def turn_away(self, why: SwarmError) -> None:
        """Whoever waits now hears why; those running go on."""
        for turn in self._turns.values():
            turn.turn_away(why)

    def _open(self, request_ids: list[str]) -> None:
        """Let these start; the others may stand elsewhere now."""
        for request_id in request_ids:
            self._turns[request_id].start()
        for turn in self._turns.values():
            if turn.is_waiting:
                turn.wake()


class Gates:
    """A gate for each model that was asked for a reply."""

    def __init__(self, waiting_max: int, clock: Clock) -> None:
        self._waiting_max = waiting_max
        self._clock = clock
        self._gates: dict[str, Gate] = {}

    def of(self, model_id: str) -> Gate:
        """The model's gate."""
        gate = self._gates.get(model_id)
        if gate is None:
            gate = self._gates[model_id] = Gate(self._waiting_max, self._clock)
        return gate
