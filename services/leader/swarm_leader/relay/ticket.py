"""Tickets of the relay: the leader's word that an end of a lane is the bearer's. Pure: HMAC over the end's name."""

import hashlib
import hmac

_CONTEXT = b"silentswarm relay ticket v1"


class Tickets:
    """Writes and checks tickets. secret: shared by the leader and a relay of its own; any length above 16 bytes."""

    def __init__(self, secret: bytes) -> None:
        self._key = hashlib.sha256(_CONTEXT + secret).digest()

    def ticket(self, lane: str, channel: str, epoch: int, role: str) -> bytes:
        """For one end of one lane in one epoch; 32 bytes. role: "sender" or "receiver"."""
        words = [part.encode() for part in (lane, channel, str(epoch), role)]
        # Each part with its length, so that no two ends read the same.
        text = b"".join(len(word).to_bytes(4, "big") + word for word in words)
        return hmac.new(self._key, text, hashlib.sha256).digest()

    def is_valid(self, presented: bytes, lane: str, channel: str, epoch: int, role: str) -> bool:
        """Whether `presented` is for that end; takes as long for a near miss as for a far one."""
        return hmac.compare_digest(presented, self.ticket(lane, channel, epoch, role))
