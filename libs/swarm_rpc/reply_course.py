"""What a reply's reader has of it, and how it is asked for again when its call broke off. Pure state."""

from silentswarm.core.v1 import generation_pb2
from silentswarm.leader.v1 import inference_pb2


class ReplyCourse:
    """One generation over all calls for it. order: as it was asked for first."""

    def __init__(self, order: inference_pb2.GenerateRequest) -> None:
        self._order = order
        self._ids: list[int] = []
        self._is_flushed = False
        self._seed: int | None = None
        self.sequence = 0

    @property
    def has_begun(self) -> bool:
        """Something of it came that was numbered: asked for anew it would come twice."""
        return self.sequence > 0

    def take(self, event: generation_pb2.GenerationEvent) -> None:
        """Its reader gets this event."""
        if not event.sequence:
            return
        self.sequence = event.sequence
        kind = event.WhichOneof("event")
        if kind == "started":
            self._seed = event.started.seed
        elif kind == "tokens":
            batch = event.tokens
            self._ids.extend(batch.ids)
            if not batch.ids and (batch.text or batch.reasoning or batch.tool_calls):
                self._is_flushed = True  # the last of the text comes without tokens

    def rest(self) -> inference_pb2.ResumeRequest:
        """Ask for the events behind what its reader has."""
        return inference_pb2.ResumeRequest(request_id=self._order.request_id, after_sequence=self.sequence)

    def order(self) -> inference_pb2.GenerateRequest:
        """Ask for the reply; for the rest of it, made anew from its tokens, when something of it came."""
        if not self.has_begun:
            return self._order
        order = inference_pb2.GenerateRequest()
        order.CopyFrom(self._order)
        generation = order.generation
        if self._seed is not None and not generation.sampling.HasField("seed"):
            generation.sampling.seed = self._seed
        resume = generation_pb2.ReplyResume(ids=self._ids, sequence=self.sequence, is_flushed=self._is_flushed)
        generation.resume.CopyFrom(resume)
        return order
