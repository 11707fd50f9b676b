"""What a stage needs of a link, whichever way it goes. No I/O."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from silentswarm.ring.v1 import ring_pb2

WIRE_VERSION = 1


@dataclass(frozen=True)
class RingPlace:
    """Which stage of which ring this is."""

    placement_id: str
    stage_index: int
    stage_count: int

    @property
    def next_stage(self) -> int:
        """The stage this one sends to."""
        return (self.stage_index + 1) % self.stage_count

    @property
    def previous_stage(self) -> int:
        """The stage this one hears from."""
        return (self.stage_index - 1) % self.stage_count


@dataclass(frozen=True)
class LinkKeys:
    """What this stage proves itself with in one epoch, and what it asks of its neighbours (core.v1.RingKeys).

    Secrets are 32 bytes. A name is on the neighbour's certificate; empty: its link is not encrypted.
    """

    next_secret: bytes = field(repr=False)
    previous_secret: bytes = field(repr=False)
    next_name: str = ""
    previous_name: str = ""
    sender_ticket: bytes = field(default=b"", repr=False)
    receiver_ticket: bytes = field(default=b"", repr=False)


class Outgoing(Protocol):
    """An open link to the next stage."""

    address: str

    async def send(self, batches: Sequence[ring_pb2.FrameBatch]) -> None:
        """Send batches in order; waits while the way is full. Raises LinkBroken; nothing is sent twice."""

    async def wait_broken(self, on_beat: Callable[[ring_pb2.Beat], None]) -> str:
        """Return why the link ended, when it does. on_beat: called for every sign of life of the stage at its end."""

    async def close(self) -> None:
        """End it; idempotent."""


def channel_of(stage_index: int, stage_count: int) -> str:
    """The relay channel a stage sends on: act, act<i>, and tok for the last (specification, "More than two stages")."""
    if stage_index == stage_count - 1:
        return "tok"
    return "act" if stage_index == 0 else f"act{stage_index}"
