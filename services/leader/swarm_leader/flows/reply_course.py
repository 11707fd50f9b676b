"""What the caller of a reply has of it, and whether and with what it goes on after a break. Pure state."""

from silentswarm.core.v1 import generation_pb2
from swarm_core.errors import Reason, SwarmError
from swarm_rpc.reply_course import Received

# Failures of a ring or a machine: another ring, or the same one again, may well go on with the reply.
OF_THE_RING = frozenset(
    {
        Reason.LINK_BROKEN,
        Reason.STAGE_FAILED,
        Reason.FELLOW_LOST,
        Reason.STALE_EPOCH,
        Reason.UNAVAILABLE,
        Reason.MODEL_NOT_READY,
        Reason.SESSION_NOT_KEPT,
    }
)
FRUITLESS_MAX = 5  # attempts in a row that bring no token; then the reply itself may be what breaks the ring


class ReplyCourse(Received):
    """One reply over all attempts at it.

    resume: where an attempt broke off that somebody else followed; None: it begins.
    """

    def __init__(self, resume: generation_pb2.ReplyResume | None = None) -> None:
        super().__init__(resume)
        self._fruitless = 0
        self.is_interrupted = self.has_begun
        self.ring = ("", 0)  # placement and epoch of the newest attempt

    def take(self, event: generation_pb2.GenerationEvent) -> None:
        """Its caller gets this event."""
        super().take(event)
        if event.tokens.ids:
            self._fruitless = 0

    def note_break(self) -> None:
        """The attempt is over."""
        self._fruitless += 1
        self.is_interrupted = True

    def may_go_on(self, error: SwarmError, can_resume: bool) -> bool:
        """Whether another attempt makes sense. can_resume: every fellow of the ring goes on with replies.

        A reply of which something came goes on only where a ring can resume it.
        """
        if error.why not in OF_THE_RING or self._fruitless >= FRUITLESS_MAX:
            return False
        return can_resume or not self.has_begun
