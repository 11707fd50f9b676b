"""What a reply's reader has of it, and how it is asked for again when its call broke off. Pure state."""

from silentswarm.core.v1 import generation_pb2
from silentswarm.leader.v1 import inference_pb2


class Received:
    """What of one reply has come, over all attempts at it.

    resume: what came of an attempt that somebody else followed; None: nothing. sequence: of the last numbered event.
    seed: what it is drawn with; None until that is told.
    """

    def __init__(self, resume: generation_pb2.ReplyResume | None = None) -> None:
        self._ids = list(resume.ids) if resume is not None else []
        self._is_flushed = resume is not None and resume.is_flushed
        self.sequence = resume.sequence if resume is not None else 0
        self.seed: int | None = None

    @property
    def has_begun(self) -> bool:
        """Something of it came that was numbered: asked for anew it would come twice."""
        return self.sequence > 0

    def take(self, event: generation_pb2.GenerationEvent) -> None:
        """Its reader gets this event. How it stands is not numbered, and soon out of date."""
        if not event.sequence:
            return
        self.sequence = event.sequence
        kind = event.WhichOneof("event")
        if kind == "started":
            self.seed = event.started.seed
        elif kind == "tokens":
            batch = event.tokens
            self._ids.extend(batch.ids)
            if not batch.ids and (batch.text or batch.reasoning or batch.tool_calls):
                self._is_flushed = True  # the last of the text comes without tokens; an empty batch is a sign of life

    def resume(self) -> generation_pb2.ReplyResume | None:
        """From where the next attempt goes on; None when it begins."""
        if not self.has_begun:
            return None
        return generation_pb2.ReplyResume(ids=self._ids, sequence=self.sequence, is_flushed=self._is_flushed)


class ReplyCourse(Received):
    """One generation over all calls for it. order: as it was asked for first."""

    def __init__(self, order: inference_pb2.GenerateRequest) -> None:
        super().__init__()
        self._order = order

    def rest(self) -> inference_pb2.ResumeRequest:
        """Ask for the events behind what its reader has."""
        return inference_pb2.ResumeRequest(request_id=self._order.request_id, after_sequence=self.sequence)

    def order(self) -> inference_pb2.GenerateRequest:
        """Ask for the reply; for the rest of it, made anew from its tokens, when something of it came."""
        resume = self.resume()
        if resume is None:
            return self._order
        order = inference_pb2.GenerateRequest()
        order.CopyFrom(self._order)
        sampling = order.generation.sampling
        if self.seed is not None and not sampling.HasField("seed"):
            sampling.seed = self.seed
        order.generation.resume.CopyFrom(resume)
        return order
