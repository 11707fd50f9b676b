"""Where requests wait while the ring of their model heals, and hear why. Heals nothing itself."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import dataclass

from swarm_core.errors import Cancelled, ModelNotReady, SwarmError, Unavailable

from swarm_leader.domain.records import PlacementState
from swarm_leader.flows.board import Board, Placement
from swarm_leader.flows.caller import Caller
from swarm_leader.flows.gate import TELL_S, Standing
from swarm_leader.flows.replies import Replies

LOOK_S = 0.25  # what is no change of the board is noticed this late: a caller that left, the end of a healing
SAME_RING_S = 2.0  # a ring that is ready for so long after a reply broke on it has no fault that is still coming
_MENDING = (PlacementState.RECOVERING, PlacementState.WIRING)
_LOADING = (PlacementState.LOADING, PlacementState.PLANNED)


@dataclass(frozen=True)
class Break:
    """What broke a reply, and on which ring."""

    error: SwarmError
    placement_id: str
    epoch: int


class Hold:
    """Waits for models. hold_s: longest wait of one interruption, in seconds."""

    def __init__(self, board: Board, replies: Replies, hold_s: float) -> None:
        self._board = board
        self._replies = replies
        self.hold_s = hold_s

    def is_healing(self, model_id: str) -> bool:
        """Whether the model answers again soon, by all that is known, though not now."""
        serving = self._board.serving_of(model_id)
        return serving is not None and self.hold_s > 0 and _heals(serving[0])

    async def wait_healed(self, caller: Caller, model_id: str, until_s: float) -> AsyncGenerator[Standing, None]:
        """Until a model does not heal any more, one way or the other, or until_s on the loop's clock.

        Raises Cancelled when the caller left.
        """
        loop = asyncio.get_running_loop()
        teller = _Teller()
        while self.is_healing(model_id) and loop.time() < until_s and not self._replies.is_stopping:
            _check_there(caller)
            placement = self._require(model_id)
            if (standing := teller.tell(placement, loop.time())) is not None:
                yield standing
            await self._look(placement.model_id)

    async def wait_ring(
        self, caller: Caller, model_id: str, broke: Break, until_s: float
    ) -> AsyncGenerator[Standing, None]:
        """Until a ring can go on with a reply that broke.

        Raises what broke it when until_s comes first, why the placement ended when it did, Cancelled when the caller
        left, and Unavailable when the leader stops.
        """
        loop = asyncio.get_running_loop()
        teller = _Teller()
        same_since_s: float | None = None
        while True:
            _check_there(caller)
            if self._replies.is_stopping:
                raise Unavailable("the leader is stopping")
            serving = self._board.serving_of(model_id)
            if serving is None:
                raise broke.error
            placement, now_s = serving[0], loop.time()
            if placement.state is PlacementState.READY:
                record = placement.record
                if (record.placement_id, record.epoch) != (broke.placement_id, broke.epoch):
                    return
                same_since_s = now_s if same_since_s is None else same_since_s
                if now_s - same_since_s >= SAME_RING_S:
                    return
            else:
                same_since_s = None
                if not _heals(placement) and placement.state not in _LOADING:
                    raise _ended(placement, broke.error)
            if now_s >= until_s:
                raise broke.error
            if (standing := teller.tell(placement, now_s)) is not None:
                yield standing
            await self._look(placement.model_id)

    def _require(self, model_id: str) -> Placement:
        serving = self._board.serving_of(model_id)
        assert serving is not None  # it heals
        return serving[0]

    async def _look(self, model_id: str) -> None:
        """A moment later, or as soon as something of the model changed."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_S):
                await self._board.wait_change(model_id, self._board.version(model_id))


class _Teller:
    """Says why it waits when that changed, at most once a second."""

    def __init__(self) -> None:
        self._told = ""
        self._told_s = float("-inf")

    def tell(self, placement: Placement, now_s: float) -> Standing | None:
        """How a request stands now; None when there is no news."""
        reason = _say_waiting(placement)
        if reason == self._told or now_s - self._told_s < TELL_S:
            return None
        self._told, self._told_s = reason, now_s
        return Standing(1, reason)


def _heals(placement: Placement) -> bool:
    return placement.state is not PlacementState.READY and (placement.is_healing or placement.state in _MENDING)


def _say_waiting(placement: Placement) -> str:
    """What a reply waits for: what is done about the ring, never what broke it, which is advice to nobody here."""
    if placement.state is PlacementState.READY:
        return f"the ring of {placement.model_id} broke; the reply goes on by itself"
    return placement.record.reason or f"{placement.model_id} is {placement.told_state}; the reply goes on by itself"


def _ended(placement: Placement, error: SwarmError) -> SwarmError:
    """Why a reply ends with its placement, as a new request hears it; what broke it when nothing more is known."""
    reason = placement.record.reason
    return ModelNotReady(reason, state=placement.state.value) if reason else error


def _check_there(caller: Caller) -> None:
    if caller.is_gone:
        raise Cancelled("the caller went away")
