"""The newest events of a reply, for a leader that lost them with its link. Bounded in events and bytes. Pure state."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from silentswarm.core.v1.generation_pb2 import GenerationEvent


@dataclass(frozen=True)
class TailLimits:
    """events_max, bytes_max: of one reply; the oldest go first."""

    events_max: int
    bytes_max: int


# What a link that broke may have swallowed: the queue in front of it and what the connection had in its buffers.
FOLLOWED = TailLimits(2048, 2**20)
# What comes until somebody resumes it.
ALONE = TailLimits(8192, 4 * 2**20)
ROOM_BYTES = 64 * 2**20


@dataclass
class TailRoom:
    """What the tails of one fellow hold together, in bytes. A reply that finds it full gives up its own oldest."""

    bytes_max: int = ROOM_BYTES
    used_bytes: int = 0


class ReplyTail:
    """The tail of one reply. Events without a number are out of date soon, and are not kept."""

    def __init__(self, room: TailRoom) -> None:
        self._room = room
        self._events: deque[tuple[GenerationEvent, int]] = deque()
        self._used_bytes = 0
        self.last_sequence = 0

    @property
    def first_sequence(self) -> int:
        """Of the oldest event that is kept; one beyond the last when none is."""
        return self._events[0][0].sequence if self._events else self.last_sequence + 1

    def push(self, event: GenerationEvent, limits: TailLimits) -> None:
        """One more event; the newest stays, however large."""
        size_bytes = event.ByteSize()
        self._events.append((event, size_bytes))
        self.last_sequence = event.sequence
        self._take(size_bytes)
        while len(self._events) > 1 and self._is_full(limits):
            self._take(-self._events.popleft()[1])

    def after(self, sequence: int) -> Sequence[GenerationEvent] | None:
        """Every event behind this one; None when some of them are gone."""
        if sequence + 1 < self.first_sequence:
            return None
        return [event for event, _ in self._events if event.sequence > sequence]

    def clear(self) -> None:
        """Nobody wants it any more."""
        self._events.clear()
        self._take(-self._used_bytes)

    def _is_full(self, limits: TailLimits) -> bool:
        is_long = len(self._events) > limits.events_max or self._used_bytes > limits.bytes_max
        return is_long or self._room.used_bytes > self._room.bytes_max

    def _take(self, size_bytes: int) -> None:
        self._used_bytes += size_bytes
        self._room.used_bytes += size_bytes
