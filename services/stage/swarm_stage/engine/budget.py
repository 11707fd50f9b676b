"""How many positions the KV of all sessions may take. Pure arithmetic."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from swarm_core.errors import ContextTooLong

SHARE_OF_FREE = 0.85  # the rest is for what the allocator cannot hand out; specification, "Admission by tokens"
WORKING_BYTES = 300 * 2**20  # passing buffers of one forward; same source


@dataclass(frozen=True)
class DeviceRoom:
    """What a stage finds on one of its devices after the load, in bytes.

    free_bytes: for us, blocks that torch keeps for itself included. kv_bytes_per_token: of the layers held there.
    working_bytes: passing buffers of one forward.
    """

    device: str
    free_bytes: int
    kv_bytes_per_token: int
    working_bytes: int = WORKING_BYTES


def stage_kv_tokens(
    rooms: Sequence[DeviceRoom], score_bytes_per_token: int = 0, context_tokens: int = 0
) -> tuple[int, DeviceRoom]:
    """Positions a stage can hold, tokens, and the device that says so: a session is on all of them, so the smallest.

    The rest as in measured_kv_tokens.
    """
    held = [
        measured_kv_tokens(
            room.free_bytes, room.kv_bytes_per_token, score_bytes_per_token, context_tokens, room.working_bytes
        )
        for room in rooms
    ]
    return min(zip(held, rooms, strict=True), key=lambda pair: pair[0])


def measured_kv_tokens(
    free_bytes: int,
    kv_bytes_per_token: int,
    score_bytes_per_token: int = 0,
    context_tokens: int = 0,
    working_bytes: int = WORKING_BYTES,
) -> int:
    """Positions that fit into what is free after the load, tokens; never negative.

    score_bytes_per_token: what one prompt piece's attention scores take against each position of its own conversation.
    One piece is computed at a time, so room is kept for the longest conversation's: context_tokens, or all that fits.
    """
    room_bytes = max(0, int(free_bytes * SHARE_OF_FREE) - working_bytes)
    tokens = room_bytes // max(1, kv_bytes_per_token + score_bytes_per_token)
    if tokens <= context_tokens or not score_bytes_per_token:
        return tokens
    return (room_bytes - score_bytes_per_token * context_tokens) // max(1, kv_bytes_per_token)


@dataclass
class KvBudget:
    """Reservations of sessions: the most each cache can grow to, from admission to end."""

    tokens: int
    context_tokens: int
    reserved: dict[int, int] = field(default_factory=dict)
    reserved_tokens: int = 0  # by all sessions together

    @property
    def longest_tokens(self) -> int:
        """The longest conversation that can ever fit."""
        return min(self.tokens, self.context_tokens)

    def check(self, prompt_tokens: int, new_tokens_max: int) -> None:
        """Refuse what can never fit, before any compute. Raises ContextTooLong with both numbers."""
        needed = prompt_tokens + new_tokens_max
        limit = self.longest_tokens
        if needed > limit:
            raise ContextTooLong(
                f"this conversation needs {needed} tokens ({prompt_tokens} of prompt, {new_tokens_max} to generate); "
                f"the ring serving this model holds {limit}",
                needed_tokens=needed,
                budget_tokens=limit,
                prompt_tokens=prompt_tokens,
            )

    def fits(self, needed_tokens: int) -> bool:
        """Whether a reservation fits beside the others now."""
        return self.reserved_tokens + needed_tokens <= self.tokens

    def reserve(self, session: int, needed_tokens: int) -> None:
        """Take tokens for a session."""
        assert self.fits(needed_tokens)
        assert session not in self.reserved
        self.reserved[session] = needed_tokens
        self.reserved_tokens += needed_tokens

    def release(self, session: int) -> None:
        """Give a session's tokens back."""
        self.reserved_tokens -= self.reserved.pop(session, 0)
