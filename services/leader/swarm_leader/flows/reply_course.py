"""What the caller of a reply has of it, and whether and with what it goes on after a break. Pure state."""

from silentswarm.core.v1 import generation_pb2
from swarm_core.errors import Reason, SwarmError

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


class ReplyCourse:
    """One reply over all attempts at it.

    resume: where an attempt broke off that somebody else followed; None: it begins. sequence: of the last event its
    caller has.
    """

    def __init__(self, resume: generation_pb2.ReplyResume | None = None) -> None:
        self.sequence = resume.sequence if resume is not None else 0
        self._ids = list(resume.ids) if resume is not None else []
        self._is_flushed = resume is not None and resume.is_flushed
        self._fruitless = 0
        self.is_interrupted = resume is not None and resume.sequence > 0
        self.ring = ("", 0)  # placement and epoch of the newest attempt

    @property
    def has_begun(self) -> bool:
        """Its caller has something of it, so that only a ring that can resume goes on with it."""
        return self.sequence > 0

    def take(self, event: generation_pb2.GenerationEvent, kind: str | None) -> None:
        """Its caller gets this event. kind: event.WhichOneof("event")."""
        if kind == "queued":
            return
        self.sequence = event.sequence
        if kind != "tokens":
            return
        batch = event.tokens
        if batch.ids:
            self._ids.extend(batch.ids)
            self._fruitless = 0
        elif batch.text or batch.reasoning or batch.tool_calls:
            self._is_flushed = True  # an empty batch is a sign of life and no end

    def note_break(self) -> None:
        """The attempt is over."""
        self._fruitless += 1
        self.is_interrupted = True

    def may_go_on(self, error: SwarmError, can_resume: bool) -> bool:
        """Whether another attempt makes sense. can_resume: every fellow of the ring goes on with replies."""
        if error.why not in OF_THE_RING or self._fruitless >= FRUITLESS_MAX:
            return False
        return can_resume or not self.has_begun

    def resume(self) -> generation_pb2.ReplyResume | None:
        """What the next attempt is told; None when it begins."""
        if not self.has_begun:
            return None
        return generation_pb2.ReplyResume(ids=self._ids, sequence=self.sequence, is_flushed=self._is_flushed)
